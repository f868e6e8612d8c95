module github.com/jetpull/jetpull/internal/webhook

go 1.26.0

require (
	github.com/jetpull/jetpull v0.0.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/jetpull/jetpull => ../..
