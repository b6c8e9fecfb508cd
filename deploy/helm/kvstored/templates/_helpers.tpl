{{- define "kvstored.labels" -}}
app.kubernetes.io/name: kvstored
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvstored.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The configuration: what the values say, and what the chart itself mounts. */}}
{{- define "kvstored.config" -}}
{{- $own := dict "listen" (dict "socket" "/run/kvstored/kvstored.sock") "disk" (dict "paths" (list "/var/lib/kvstored")) -}}
{{- if .Values.keep.enabled -}}
{{- $_ := set $own "cpu" (dict "keep" true) -}}
{{- end -}}
{{- if .Values.bridge.enabled -}}
{{- $_ := set $own "events" (dict "enabled" true) -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $own) }}
{{- end }}

{{- define "kvstored.security" -}}
runAsUser: 65532
runAsGroup: 65532
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}
