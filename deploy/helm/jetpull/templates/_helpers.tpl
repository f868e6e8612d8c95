{{- define "jetpull.name" -}}{{ printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" }}{{- end }}

{{- define "jetpull.selector" -}}
app.kubernetes.io/name: jetpull
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "jetpull.metadata" -}}
name: {{ include "jetpull.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "jetpull.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- /* A part that keeps its state in a volume of its own has one pod. */}}
{{- define "jetpull.embedded" -}}{{ if and (has .part (list "broker" "relay")) (not .root.Values.nats.url) }}true{{ end }}{{- end }}

{{- define "jetpull.replicas" -}}
{{ if or (include "jetpull.embedded" .) (eq .part "console") }}1{{ else }}{{ .v.replicas }}{{ end }}
{{- end }}

{{- define "jetpull.scaled" -}}{{ if and (not (include "jetpull.embedded" .)) (dig "autoscaling" "enabled" false .v) }}true{{ end }}{{- end }}

{{- define "jetpull.port" -}}{{ get (dict "broker" "8080" "relay" "8080" "feed" "9090" "console" "8222") .part }}{{- end }}

{{- define "jetpull.secretEnv" -}}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
{{- end }}

{{- define "jetpull.env" -}}
{{- $all := .root.Values }}
{{- if eq .part "broker" }}
{{ include "jetpull.secretEnv" (dict "name" "JETPULL_BROKER_ADMIN_TOKEN" "secret" .v.secret "key" "admin-token") }}
{{- else if eq .part "relay" }}
{{ include "jetpull.secretEnv" (dict "name" "JETPULL_RELAY_ADMIN_TOKEN" "secret" .v.secret "key" "admin-token") }}
{{- else if eq .part "feed" }}
{{ include "jetpull.secretEnv" (dict "name" "PGPASSWORD" "secret" .v.secret "key" "password") }}
{{- else }}
{{ include "jetpull.secretEnv" (dict "name" "JETPULL_CONSOLE_TOKEN" "secret" .v.secret "key" "token") }}
{{ include "jetpull.secretEnv" (dict "name" "JETPULL_CONSOLE_READ_TOKEN" "secret" .v.secret "key" "read-token") }}
{{- if $all.broker.enabled }}
{{ include "jetpull.secretEnv" (dict "name" "JETPULL_BROKER_ADMIN_TOKEN" "secret" $all.broker.secret "key" "admin-token") }}
{{- end }}
{{- if $all.relay.enabled }}
{{ include "jetpull.secretEnv" (dict "name" "JETPULL_RELAY_TOKEN" "secret" $all.relay.secret "key" "admin-token") }}
{{- end }}
{{- if $all.feed.enabled }}
{{ include "jetpull.secretEnv" (dict "name" "PGPASSWORD" "secret" $all.feed.secret "key" "password") }}
{{- end }}
{{- end }}
{{- with .v.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The arguments, as a list in JSON. */}}
{{- define "jetpull.args" -}}
{{- $all := .root.Values }}
{{- $args := list .part "--listen" (printf "0.0.0.0:%s" (include "jetpull.port" .)) }}
{{- if eq .part "feed" }}
{{- $database := required "feed.database is missing: set it to the URL of a database, such as postgres://feed@postgres:5432/feed" .v.database }}
{{- $handler := required "feed.handler is missing: set it to the URL that items are posted to" .v.handler }}
{{- $args = list "feed" "--db" $database "--handler" $handler "--metrics" "0.0.0.0:9090" "--console=false" }}
{{- else if include "jetpull.embedded" . }}
{{- $args = concat $args (list "--store-dir" "/data/store") }}
{{- with dig "storage" "max" "" .v }}{{ $args = concat $args (list "--store-max" .) }}{{ end }}
{{- else if $all.nats.url }}
{{- $args = concat $args (list "--nats" $all.nats.url) }}
{{- with .v.credsSecret }}{{ $args = concat $args (list "--creds" "/etc/jetpull/nats.creds") }}{{ end }}
{{- if ne .part "console" }}{{ $args = concat $args (list "--replicas" ($all.nats.copies | toString)) }}{{ end }}
{{- end }}
{{- if and $all.serviceMonitor.enabled (has .part (list "broker" "relay")) }}
{{- $args = concat $args (list "--http-open-metrics" "true") }}
{{- end }}
{{- if eq .part "console" }}
{{- $root := .root }}
{{- range $part := list "broker" "relay" }}
{{- if (get $all $part).enabled }}
{{- $args = concat $args (list (printf "--%s" $part) (printf "http://%s" (include "jetpull.name" (dict "root" $root "part" $part)))) }}
{{- end }}
{{- end }}
{{- if $all.feed.enabled }}{{ $args = concat $args (list "--feed" $all.feed.database) }}{{ end }}
{{- if not (or $all.nats.url $all.broker.enabled $all.relay.enabled $all.feed.enabled) }}
{{- fail "console.enabled: it has nothing to show: set nats.url, or enable broker, relay or feed" }}
{{- end }}
{{- end }}
{{- concat $args .v.args | toJson }}
{{- end }}
