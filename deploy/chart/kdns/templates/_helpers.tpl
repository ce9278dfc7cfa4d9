{{- define "kdns.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The name of the objects: `kdns` of a release with that name, otherwise `RELEASE-kdns`. */}}
{{- define "kdns.fullname" -}}
{{- $name := include "kdns.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kdns.deployment" -}}
{{ default (include "kdns.fullname" .) .Values.deployment.name }}
{{- end }}

{{- define "kdns.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "kdns.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* The labels by which the Pods are selected; they may not change in an upgrade. */}}
{{- define "kdns.selector" -}}
app.kubernetes.io/name: {{ include "kdns.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- if .Values.isClusterService }}
k8s-app: {{ .Values.k8sAppLabelOverride }}
{{- end }}
{{- end }}

{{- define "kdns.labels" -}}
app.kubernetes.io/name: {{ include "kdns.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The line metadata.annotations and those below, of the chart's values and of the object's: [root, the object's]. */}}
{{- define "kdns.annotations" -}}
{{- with merge (dict) (index . 1) (index . 0).Values.customAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* The ports of the servers as a list of {port, protocol, nodePort}. */}}
{{- define "kdns.ports" -}}
{{- $ports := dict }}
{{- range .Values.servers }}
{{- $server := . }}
{{- range default (list (dict "zone" ".")) .zones }}
{{- $scheme := default "dns://" .scheme }}
{{- $default := get (dict "dns://" 53 "tls://" 853 "https://" 443 "quic://" 853) $scheme }}
{{- if not $default }}
{{- fail (printf "servers: scheme %q is not supported; expected dns://, tls://, https:// or quic://" $scheme) }}
{{- end }}
{{- $protocols := get (dict "dns://" (list "UDP" "TCP") "quic://" (list "UDP")) $scheme | default (list "TCP") }}
{{- range $protocols }}
{{- $port := dict "port" (default $default $server.port | int) "protocol" . }}
{{- with $server.nodePort }}
{{- $_ := set $port "nodePort" (int .) }}
{{- end }}
{{- $_ := set $ports (printf "%s-%d" (lower .) $port.port) $port }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $ports }}
{{- end }}

{{- /* The port of the first `prometheus`. */}}
{{- define "kdns.metricsPort" -}}
{{- $port := 9153 }}
{{- range .Values.servers }}
{{- range .plugins }}
{{- if and (eq .name "prometheus") .parameters }}
{{- $port = splitList ":" (toString .parameters) | last }}
{{- end }}
{{- end }}
{{- end }}
{{- $port }}
{{- end }}

{{- define "kdns.corefile" -}}
{{- range $name, $line := .Values.extraConfig }}
{{ $name }} {{ $line.parameters }}
{{- end }}
{{- range .Values.servers }}
{{- $port := .port }}
{{- $keys := list }}
{{- range default (list (dict "zone" ".")) .zones }}
{{- $keys = append $keys (printf "%s%s%s" (default "" .scheme) (default "." .zone) (empty $port | ternary "" (printf ":%v" $port))) }}
{{- end }}
{{ join " " $keys }} {
{{- range .plugins }}
    {{ .name }}
    {{- with .parameters }} {{ . }}{{ end }}
    {{- with .configBlock }} {
{{ . | indent 8 }}
    }
    {{- end }}
{{- end }}
}
{{- end }}
{{- end }}
