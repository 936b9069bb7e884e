{{- define "shoal.name" -}}
{{- if contains "shoal" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-shoal{{ end -}}
{{- end }}

{{- define "shoal.selector" -}}
app.kubernetes.io/name: shoal
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shoal.labels" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The part of the volume that blocks may take, in MiB. */}}
{{- define "shoal.capacity" -}}
{{- $mib := dict "Mi" 1 "Gi" 1024 "Ti" 1048576 -}}
{{- $number := regexFind "^[0-9]+" .Values.store.size | int64 -}}
{{- $unit := regexFind "[A-Za-z]+$" .Values.store.size -}}
{{- div (mul $number (get $mib $unit) .Values.store.fillPercent) 100 }}MiB
{{- end }}
