{{/* A fleet has one manager, in one or more replicas, so its names are fixed. */}}
{{- define "kapsa.fleet.name" -}}
kapsa-fleet
{{- end -}}

{{- define "kapsa.fleet.selector" -}}
app.kubernetes.io/name: {{ include "kapsa.fleet.name" . }}
app.kubernetes.io/part-of: kapsa
{{- end -}}

{{- define "kapsa.fleet.labels" -}}
{{ include "kapsa.fleet.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The most replicas that the manager can have at a time. */}}
{{- define "kapsa.fleet.maxReplicas" -}}
{{- if .Values.fleet.autoscaling.enabled }}{{ .Values.fleet.autoscaling.maxReplicas }}{{ else }}{{ .Values.fleet.replicas }}{{ end -}}
{{- end -}}

{{/* "true" if a ServiceMonitor is installed. The manager serves metrics only to callers with a token. */}}
{{- define "kapsa.fleet.isMonitored" -}}
{{- $monitor := .Values.fleet.serviceMonitor -}}
{{- if and (include "kapsa.isOn" (list $monitor.enabled "monitoring.coreos.com/v1/ServiceMonitor" .)) (or $monitor.tokenSecretName $monitor.oauth2) }}true{{ end -}}
{{- end -}}

{{/* Fails with what is missing or contradictory. Types and names are checked by values.schema.json. */}}
{{- define "kapsa.fleet.check" -}}
{{- $fleet := .Values.fleet -}}
{{- if not $fleet.database.secretName -}}
{{- fail "fleet.database.secretName is empty: create a Secret with the URL of a PostgreSQL database (postgresql://user:password@host:5432/database) and set its name; replicas cannot share an embedded database" -}}
{{- end -}}
{{- if not (or $fleet.encryptionKeys.secretName $fleet.settings.VAULT_ADDRESS) -}}
{{- fail "fleet.encryptionKeys.secretName is empty: create a Secret with the output of `kapsa fleet keys generate`, keep a copy elsewhere, and set its name; or have Vault wrap the keys, with fleet.settings.VAULT_ADDRESS" -}}
{{- end -}}
{{- if or (not $fleet.authentication.issuer) (not $fleet.authentication.jwksUrl) -}}
{{- fail "fleet.authentication.issuer and fleet.authentication.jwksUrl must be set: the manager accepts the tokens of your identity provider only" -}}
{{- end -}}
{{- if and $fleet.tls.secretName $fleet.plainHttp -}}
{{- fail "fleet.tls.secretName and fleet.plainHttp are both set: choose one of them" -}}
{{- end -}}
{{- if not (or $fleet.tls.secretName $fleet.plainHttp) -}}
{{- fail "fleet.tls.secretName is empty: set it to a Secret of type kubernetes.io/tls, or set fleet.plainHttp=true if a proxy in front of the manager terminates TLS" -}}
{{- end -}}
{{- if $fleet.ingress.enabled -}}
{{- if or (not $fleet.ingress.host) (not $fleet.ingress.tlsSecretName) -}}
{{- fail "fleet.ingress.host and fleet.ingress.tlsSecretName must be set with fleet.ingress.enabled: tokens are not sent over plain HTTP" -}}
{{- end -}}
{{- end -}}
{{- with $fleet.autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "fleet.autoscaling.minReplicas is %d, which is more than fleet.autoscaling.maxReplicas, %d" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if ge (int .idleCpuUtilization) (int .cpuUtilization) -}}
{{- fail (printf "fleet.autoscaling.idleCpuUtilization is %d, but must be less than fleet.autoscaling.cpuUtilization, %d" (int .idleCpuUtilization) (int .cpuUtilization)) -}}
{{- end -}}
{{- end -}}
{{- if and $fleet.autoscaling.enabled (not (dig "requests" "cpu" "" $fleet.resources)) -}}
{{- fail "fleet.resources.requests.cpu must be set with fleet.autoscaling.enabled: CPU utilization is a share of it" -}}
{{- end -}}
{{- if and (eq (toString $fleet.serviceMonitor.enabled) "true") (not (include "kapsa.fleet.isMonitored" .)) -}}
{{- fail "fleet.serviceMonitor.tokenSecretName or fleet.serviceMonitor.oauth2 must be set with fleet.serviceMonitor.enabled=true: the manager serves metrics only to callers with a token" -}}
{{- end -}}
{{- if and $fleet.serviceMonitor.tokenSecretName $fleet.serviceMonitor.oauth2 -}}
{{- fail "fleet.serviceMonitor.tokenSecretName and fleet.serviceMonitor.oauth2 are both set: choose one of them" -}}
{{- end -}}
{{- end -}}

{{/* Settings by their variable: those set by other values, then those in fleet.settings. */}}
{{- define "kapsa.fleet.variables" -}}
{{- $fleet := .Values.fleet -}}
{{- $known := splitList "\n" (trim (.Files.Get "files/fleet-settings.txt")) -}}
{{- $taken := dict
  "DATA_DIRECTORY" "" "LISTEN_ADDRESS" ""
  "LOG_LEVEL" "fleet.logging.level" "LOG_FORMAT" "fleet.logging.format"
  "LISTEN_PORT" "fleet.port" "PLAIN_HTTP" "fleet.plainHttp" "PUBLIC_URL" "fleet.publicUrl"
  "TLS_CERTIFICATE" "fleet.tls.secretName" "TLS_KEY" "fleet.tls.secretName"
  "ENCRYPTION_KEYS" "fleet.encryptionKeys" "ENCRYPTION_KEYS_FILE" "fleet.encryptionKeys"
  "JWT_ISSUER" "fleet.authentication.issuer" "JWT_JWKS_URL" "fleet.authentication.jwksUrl"
  "OIDC_CLIENT_SECRET" "fleet.authentication.clientSecret"
  "SMTP_PASSWORD" "fleet.mail" "SMTP_PASSWORD_FILE" "fleet.mail"
  "VAULT_TOKEN" "VAULT_TOKEN_FILE, with fleet.volumes and fleet.volumeMounts"
  "WEBHOOK_SECRET" "fleet.webhooks" "WEBHOOK_SECRET_FILE" "fleet.webhooks" -}}
{{- range $name, $value := $fleet.settings -}}
{{- if not (has $name $known) -}}
{{- fail (printf "fleet.settings.%s is not a setting of the fleet manager; the settings are %s" $name (join ", " $known)) -}}
{{- end -}}
{{- if hasKey $taken $name -}}
{{- fail (printf "fleet.settings.%s is set by the chart%s" $name (get $taken $name | empty | ternary "" (printf ": use %s" (get $taken $name)))) -}}
{{- end -}}
{{- end -}}
KAPSA_FLEET_DATA_DIRECTORY: /var/cache/kapsa/fleet
KAPSA_FLEET_LISTEN_ADDRESS: {{ $fleet.listenAddress | quote }}
KAPSA_FLEET_LISTEN_PORT: {{ $fleet.port }}
KAPSA_FLEET_LOG_LEVEL: {{ $fleet.logging.level }}
KAPSA_FLEET_LOG_FORMAT: {{ $fleet.logging.format }}
{{- if $fleet.encryptionKeys.secretName }}
KAPSA_FLEET_ENCRYPTION_KEYS_FILE: /etc/kapsa/fleet/encryption-keys/keys
{{- end }}
KAPSA_FLEET_JWT_ISSUER: {{ $fleet.authentication.issuer | quote }}
KAPSA_FLEET_JWT_JWKS_URL: {{ $fleet.authentication.jwksUrl | quote }}
{{- if $fleet.plainHttp }}
KAPSA_FLEET_PLAIN_HTTP: true
{{- else }}
KAPSA_FLEET_TLS_CERTIFICATE: /etc/kapsa/fleet/tls/tls.crt
KAPSA_FLEET_TLS_KEY: /etc/kapsa/fleet/tls/tls.key
{{- end }}
{{- with $fleet.publicUrl | default ($fleet.ingress.enabled | ternary (printf "https://%s" $fleet.ingress.host) "") }}
KAPSA_FLEET_PUBLIC_URL: {{ . | quote }}
{{- end }}
{{- if $fleet.mail.secretName }}
KAPSA_FLEET_SMTP_PASSWORD_FILE: /etc/kapsa/fleet/mail/password
{{- end }}
{{- if $fleet.webhooks.secretName }}
KAPSA_FLEET_WEBHOOK_SECRET_FILE: /etc/kapsa/fleet/webhooks/secret
{{- end }}
{{- range $name, $value := $fleet.settings }}
{{- /* Helm parses every number as a float, and would write a large one as 2e+09. */}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value = int64 $value }}{{ end }}
KAPSA_FLEET_{{ $name }}: {{ toString $value | quote }}
{{- end }}
{{- end -}}

{{/* Secrets that are mounted as files, by the directory under /etc/kapsa/fleet: name, and the key for each file. */}}
{{- define "kapsa.fleet.mounted" -}}
{{- $fleet := .Values.fleet -}}
{{- if $fleet.encryptionKeys.secretName }}
encryption-keys:
  secretName: {{ $fleet.encryptionKeys.secretName }}
  items: [{key: {{ $fleet.encryptionKeys.secretKey | quote }}, path: keys}]
{{- end }}
{{- with $fleet.tls.secretName }}
tls:
  secretName: {{ . }}
  items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}
{{- if $fleet.mail.secretName }}
mail:
  secretName: {{ $fleet.mail.secretName }}
  items: [{key: {{ $fleet.mail.secretKey | quote }}, path: password}]
{{- end }}
{{- if $fleet.webhooks.secretName }}
webhooks:
  secretName: {{ $fleet.webhooks.secretName }}
  items: [{key: {{ $fleet.webhooks.secretKey | quote }}, path: secret}]
{{- end }}
{{- end -}}

{{/* A probe of the API. The kubelet does not verify the certificate. */}}
{{- define "kapsa.fleet.probe" -}}
httpGet:
  path: {{ index . 0 }}
  port: api
  scheme: {{ (index . 1).Values.fleet.plainHttp | ternary "HTTP" "HTTPS" }}
{{- end -}}
