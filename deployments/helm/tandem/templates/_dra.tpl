{{/* What belongs to the DRA driver is called after it: tandem-dra for the releases tandem and tandem-dra. */}}
{{- define "tandem.dra" -}}
{{ trimSuffix "-dra" (include "tandem.name" .) }}-dra
{{- end }}

{{/* The name of what is in no namespace. */}}
{{- define "tandem.draCluster" -}}
{{ .Release.Namespace }}-{{ include "tandem.dra" . }}
{{- end }}

{{/* Who tandem-dra is to the API server. */}}
{{- define "tandem.draUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "tandem.serviceAccount" . }}
{{- end }}

{{/* Resource names of VFs that pods ask for, as JSON: those of values, else those of the configuration. */}}
{{- define "tandem.vfResources" -}}
{{- $names := .Values.dra.vfResources }}
{{- if not $names }}
{{- if .Values.rdma.existingConfigMap }}
{{- fail (printf "dra.vfResources: the chart does not read the configuration %s of rdma.existingConfigMap: name its resources here, so that pods may ask for them" .Values.rdma.existingConfigMap) }}
{{- end }}
{{- range concat (.Values.rdma.config.resourceList | default list) (.Values.rdma.config.configList | default list) }}
{{- $names = append $names (printf "%s/%s" (.resourcePrefix | default $.Values.rdma.resourcePrefix) .resourceName) }}
{{- end }}
{{- end }}
{{- uniq $names | toJson }}
{{- end }}

{{/* The name of the class for a resource, without the driver's. */}}
{{- define "tandem.classOf" -}}
{{ regexReplaceAll "[^a-z0-9.]" (lower .) "-" }}
{{- end }}

{{/* Values that only the device plugins hear, and clusters without DRA. */}}
{{- define "tandem.draRefuse" -}}
{{- if semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version }}
{{- fail (printf "mode: dra requires Kubernetes 1.34 or later, and the cluster has %s: leave mode device-plugin" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- range $key := list "intent" "deviceAnnotations" }}
{{- if index $.Values $key }}
{{- fail (printf "%s: that is for the device plugins: in mode dra the scheduler chooses, and knows what it chooses for; leave %s empty" $key $key) }}
{{- end }}
{{- end }}
{{- with .Values.alignmentPolicy.nodes }}
{{- fail "alignmentPolicy.nodes: that is for the device plugins: tandem-dra enforces the annotation on each of its nodes; leave alignmentPolicy.nodes empty" }}
{{- end }}
{{- if or .Values.publish .Values.publishKubeletDir }}
{{- fail "publish: that is for the device plugins: in mode dra a node publishes its devices as ResourceSlices, and the scheduler reads those; leave publish empty and publishKubeletDir false" }}
{{- end }}
{{- if not .Values.rdma.enabled }}
{{- fail "rdma.enabled: in mode dra one daemon publishes GPUs and VFs: leave rdma.enabled true; nodes without the VFs of rdma.config publish GPUs alone" }}
{{- end }}
{{- if and .Values.gpu.enabled (eq .Values.gpu.vendor "nvidia") (not .Values.gpu.driverRoot) }}
{{- fail "gpu.driverRoot: in mode dra NVIDIA's GPUs are given by CDI, which names the driver's files, and tandem-dra has to see them: set it to / where the node itself has the driver" }}
{{- end }}
{{- if not .Values.preferredAllocation }}
{{- fail "preferredAllocation: that is for the device plugins: in mode dra the scheduler chooses; leave preferredAllocation true" }}
{{- end }}
{{- end }}

{{/* The head of a claim template, up to what is asked for. */}}
{{- define "tandem.claimTemplate" }}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: tandem-{{ .name }}
  namespace: {{ .namespace | quote }}
  labels: {{- include "tandem.labels" .root | nindent 4 }}
spec:
  spec:
    devices:
{{- end }}
