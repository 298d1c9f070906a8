{{/* Whether the nodes of a plugin, as the value plugin, have configurations by their label; empty for no. */}}
{{- define "tandem.byLabel" -}}
{{- if and .plugin.enabled (or .plugin.configs.name .plugin.configs.map) }}true{{ end }}
{{- end }}

{{- define "tandem.gpuByLabel" -}}
{{- if has .Values.gpu.vendor (list "auto" "nvidia") }}{{ include "tandem.byLabel" (dict "plugin" .Values.gpu) }}{{ end }}
{{- end }}

{{- define "tandem.rdmaByLabel" -}}
{{- include "tandem.byLabel" (dict "plugin" .Values.rdma) }}
{{- end }}

{{/* Whether labels of nodes are read, for which the account's token is needed. */}}
{{- define "tandem.nodesToken" -}}
{{ and (eq .Values.mode "device-plugin") (not (empty (or (include "tandem.gpuByLabel" .) (include "tandem.rdmaByLabel" .)))) }}
{{- end }}

{{/* The configurations of VFs by name, as JSON, with the exports. */}}
{{- define "tandem.rdmaConfigs" -}}
{{- $all := dict }}
{{- $given := .Values.rdma.configs.map }}
{{- if not (hasKey $given "default") }}{{ $given = merge (dict "default" .Values.rdma.config) $given }}{{ end }}
{{- range $name, $config := $given }}
{{- $_ := set $all $name (include "tandem.exported" (merge (dict "config" $config) $)) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* config-manager as a container. It has the plugin's values as plugin, the label, the file that the daemon reads, and the daemon's
name; oneshot for the init container, which the daemon waits for. */}}
{{- define "tandem.configManager" -}}
name: {{ ternary "config-manager-init" "config-manager" .oneshot }}
image: {{ include "tandem.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
command: [config-manager]
args:
  - --node-label={{ .label }}
  - --config-file-srcdir=/available-configs
  - --config-file-dst={{ .file }}
  {{- with .plugin.configs.default }}
  - --default-config={{ . }}
  {{- end }}
  - --fallback-strategies={{ join "," .plugin.configs.fallbackStrategies }}
  {{- if .oneshot }}
  - --oneshot
  - --send-signal=false
  {{- else }}
  - --process-to-signal={{ .daemon }}
  {{- end }}
  # A wrong label is no reason to be started again and again.
  - --wait-on-error
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 128Mi}
volumeMounts:
  - {name: available-configs, mountPath: /available-configs, readOnly: true}
  - {name: config, mountPath: {{ dir .file }}}
{{- end }}

{{/* What the daemon mounts where config-manager does, for the file is a link. */}}
{{- define "tandem.configsMounts" -}}
- {name: available-configs, mountPath: /available-configs, readOnly: true}
- {name: config, mountPath: {{ dir .file }}, readOnly: true}
{{- end }}

{{/* The configurations, of the ConfigMap configMap. */}}
{{- define "tandem.configsVolumes" -}}
- name: available-configs
  configMap: {name: {{ .configMap | quote }}}
# Where config-manager links the node's one.
- name: config
  emptyDir: {}
{{- end }}
