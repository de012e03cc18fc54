{{/* A cluster has one operator, so its names are fixed, as in `kapsa environments manifests`. */}}
{{- define "kapsa.name" -}}
kapsa-operator
{{- end -}}

{{- define "kapsa.selector" -}}
app.kubernetes.io/name: {{ include "kapsa.name" . }}
app.kubernetes.io/part-of: kapsa
{{- end -}}

{{- define "kapsa.labels" -}}
{{ include "kapsa.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kapsa.webhooksCertificate" -}}
kapsa-operator-webhooks-certificate
{{- end -}}

{{/* "true" if a feature is enabled by its value or, with auto, because the cluster has the kind. Takes a value, a kind and the root. */}}
{{- define "kapsa.isOn" -}}
{{- $value := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $root := index . 2 -}}
{{- if eq (toString $value) "auto" -}}
{{- if $root.Capabilities.APIVersions.Has $kind }}true{{ end -}}
{{- else if $value }}true{{ end -}}
{{- end -}}

{{/* Settings by their variable: those set by other values, then those in operator.settings. */}}
{{- define "kapsa.variables" -}}
{{- $known := splitList "\n" (trim (.Files.Get "files/settings.txt")) -}}
{{- $taken := list "NAMESPACE" "LOG_LEVEL" "LOG_FORMAT" "METRICS_PORT" "METRICS_ENABLED" "CACHE_DIRECTORY" "WEBHOOKS_ENABLED" "WEBHOOK_PORT" "WEBHOOK_SERVICE" "WEBHOOK_URL" "WEBHOOK_CERT_DIRECTORY" "GIT_WEBHOOK_PORT" "GIT_WEBHOOK_SECRET" -}}
{{- range $name, $value := .Values.operator.settings -}}
{{- if not (has $name $known) -}}
{{- fail (printf "operator.settings.%s is not a setting of the operator; the settings are %s" $name (join ", " $known)) -}}
{{- end -}}
{{- if has $name $taken -}}
{{- fail (printf "operator.settings.%s is set by other values of this chart: use operator.logging, metrics, webhooks or gitWebhooks" $name) -}}
{{- end -}}
{{- end -}}
KAPSA_LOG_LEVEL: {{ .Values.operator.logging.level }}
KAPSA_LOG_FORMAT: {{ .Values.operator.logging.format }}
KAPSA_METRICS_PORT: {{ .Values.metrics.port }}
KAPSA_METRICS_ENABLED: {{ .Values.metrics.enabled }}
KAPSA_WEBHOOKS_ENABLED: {{ .Values.webhooks.enabled }}
{{- if .Values.webhooks.enabled }}
KAPSA_WEBHOOK_PORT: {{ .Values.webhooks.port }}
{{- with .Values.webhooks.url }}
KAPSA_WEBHOOK_URL: {{ . }}
{{- end }}
{{- if eq .Values.webhooks.certificates "cert-manager" }}
KAPSA_WEBHOOK_CERT_DIRECTORY: /etc/kapsa/webhooks
{{- end }}
{{- end }}
{{- if .Values.gitWebhooks.enabled }}
KAPSA_GIT_WEBHOOK_PORT: {{ .Values.gitWebhooks.port }}
{{- end }}
{{- range $name, $value := .Values.operator.settings }}
{{- /* Helm parses every number as a float, and would write a large one as 2e+09. */}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value = int64 $value }}{{ end }}
KAPSA_{{ $name }}: {{ toString $value | quote }}
{{- end }}
{{- end -}}
