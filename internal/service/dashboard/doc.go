// Package dashboard checks a Grafana dashboard and Prometheus alert rules against a scrape: it must have each metric and
// label that their expressions use. It is for tests.
//
//	scrape, err := dashboard.ParseScrape(body)
//	...
//	err = errors.Join(scrape.CheckDashboard(panels), scrape.CheckRules(alerts))
package dashboard
