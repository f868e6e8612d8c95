module github.com/jetpull/jetpull/internal/dashboard

go 1.26.0

require (
	github.com/VictoriaMetrics/metricsql v0.87.3
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/VictoriaMetrics/metrics v1.35.3 // indirect
	github.com/valyala/fastrand v1.1.0 // indirect
	github.com/valyala/histogram v1.2.0 // indirect
	golang.org/x/sys v0.32.0 // indirect
)
