// Package dashboard holds a Grafana dashboard and Prometheus alert rules against a scrape: each metric and label that
// their expressions use must be there. It is for tests.
//
//	scrape, err := dashboard.ParseScrape(body)
//	...
//	err = errors.Join(scrape.CheckDashboard(panels), scrape.CheckRules(alerts))
package dashboard
