{{/* What belongs to tandem-scheduler is called after it. */}}
{{- define "tandem.scheduler" -}}
{{ include "tandem.name" . }}-scheduler
{{- end }}

{{/* The name of what is in no namespace of the release. */}}
{{- define "tandem.schedulerCluster" -}}
{{ .Release.Namespace }}-{{ include "tandem.scheduler" . }}
{{- end }}

{{- define "tandem.schedulerImage" -}}
{{- with .Values.scheduler.image -}}
{{ .repository | default (printf "%s-scheduler" $.Values.image.repository) }}:
{{- .tag | default $.Values.image.tag | default (include "tandem.version" $) }}
{{- with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{- define "tandem.schedulerSubjects" -}}
subjects:
  - {kind: ServiceAccount, name: {{ include "tandem.scheduler" . }}, namespace: {{ .Release.Namespace | quote }}}
{{- end }}

{{- define "tandem.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: {{ include "tandem.scheduler" . }} # the cluster's own scheduler holds kube-scheduler
profiles:
  - schedulerName: {{ .Values.scheduler.name | quote }}
    plugins:
      multiPoint:
        enabled:
          - name: Tandem
            weight: {{ int64 .Values.scheduler.weight }}
      filter: # before NodeResourcesFit, which takes longer
        enabled:
          - name: Tandem
{{- end }}

{{/* A scheduler that would wait for ever, or have nothing to go by. */}}
{{- define "tandem.schedulerRefuse" -}}
{{- if ne .Values.mode "device-plugin" }}
{{- fail "scheduler.enabled: that is for the device plugins: in mode dra the cluster's own scheduler allocates; leave scheduler.enabled false" }}
{{- end }}
{{- if not (has "tandem" .Values.publish) }}
{{- fail "scheduler.enabled: tandem-scheduler goes by the NodeTopology that each node publishes, and waits for its definition: add tandem to publish (publish={tandem})" }}
{{- end }}
{{- end }}
