{{/* Labels of every object. */}}
{{- define "tandem.labels" -}}
app.kubernetes.io/part-of: tandem
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ include "tandem.version" . | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The version as a tag or a label, in which no plus can be: withTag in deployments/release/image. */}}
{{- define "tandem.version" -}}
{{ .Chart.AppVersion | replace "+" "_" }}
{{- end }}

{{/* The first part of the names of objects. */}}
{{- define "tandem.name" -}}
{{ .Values.nameOverride | default .Release.Name }}
{{- end }}

{{/* The resource of VFs that "helm test" asks for; empty where only an existing ConfigMap knows it. */}}
{{- define "tandem.testVFs" -}}
{{- $first := dict }}
{{- if not (or .Values.rdma.existingConfigMap .Values.rdma.configs.name) }}{{ $first = first (.Values.rdma.config.resourceList | default (list dict)) }}{{ end }}
{{- $name := "" }}
{{- with $first.resourceName }}{{ $name = printf "%s/%s" ($first.resourcePrefix | default $.Values.rdma.resourcePrefix) . }}{{ end }}
{{- .Values.test.vfResource | default $name }}
{{- end }}

{{/* The resource of GPUs that "helm test" asks for; empty if the vendor is not known. */}}
{{- define "tandem.testGPUs" -}}
{{- .Values.test.gpuResource | default (ternary "" (printf "%s.com/gpu" .Values.gpu.vendor) (eq .Values.gpu.vendor "auto")) }}
{{- end }}

{{/* Whether the chart has a pod for "helm test". */}}
{{- define "tandem.tests" -}}
{{- if and (eq .Values.mode "device-plugin") .Values.gpu.enabled .Values.rdma.enabled (include "tandem.testVFs" .) }}true{{ end }}
{{- end }}

{{/* Names the GPUs for "helm test" in a release that is installed, without a restart of its daemons. */}}
{{- define "tandem.nameGPUs" -}}
helm upgrade {{ .Release.Name }} CHART -n {{ .Release.Namespace }} --reset-then-reuse-values --set test.gpuResource=RESOURCE
{{- end }}

{{- define "tandem.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (include "tandem.version" .) }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The first part of the names of objects that both modes have: two releases, one for each, may meet in a namespace. */}}
{{- define "tandem.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "tandem.dra" .) (include "tandem.name" .) (eq .Values.mode "dra")) }}
{{- end }}

{{/* The intent sources, with commas between; empty for the daemons' default. values.yaml has the reason for the other one. */}}
{{- define "tandem.intent" -}}
{{- if .Values.intent }}
{{- join "," .Values.intent }}
{{- else if and (eq .Values.mode "device-plugin") (semverCompare ">=1.33.0-0 <1.37.0-0" .Capabilities.KubeVersion.Version) }}
{{- "pods-api,kubelet,podresources" }}
{{- end }}
{{- end }}

{{- define "tandem.asksKubelet" -}}
{{ has "kubelet" (splitList "," (include "tandem.intent" .)) }}
{{- end }}

{{/* Whether anything needs the account's token. */}}
{{- define "tandem.token" -}}
{{ or .Values.events (eq (include "tandem.asksKubelet" .) "true") (not (empty .Values.publish)) (eq (include "tandem.nodesToken" .) "true") }}
{{- end }}

{{/* The name of the policies for the annotation tandem.dev/alignment. */}}
{{- define "tandem.alignment" -}}
{{ .Release.Namespace }}-{{ ternary (include "tandem.dra" .) (include "tandem.name" .) (eq .Values.mode "dra") }}-alignment
{{- end }}

{{/* What becomes of pods that require alignment and may come to nodes without the label: values.yaml has the reasons. tandem-dra itself
reads the annotations of each pod with a claim. */}}
{{- define "tandem.alignmentNodes" -}}
{{- if eq .Values.mode "dra" }}ignore
{{- else }}{{ .Values.alignmentPolicy.nodes | default (ternary "deny" "warn" (eq (include "tandem.publishesEnforced" .) "true")) }}
{{- end }}
{{- end }}

{{/* Whether nodes publish the label tandem.dev/alignment-enforced. */}}
{{- define "tandem.publishesEnforced" -}}
{{ has "nfd" .Values.publish }}
{{- end }}

{{- define "tandem.configMap" -}}
{{ .Values.rdma.existingConfigMap | default (ternary (include "tandem.dra" .) (printf "%s-rdma" (include "tandem.name" .)) (eq .Values.mode "dra")) }}
{{- end }}

{{/* Where the daemons meet: values.yaml has the reason. */}}
{{- define "tandem.runDir" -}}
{{- $shared := printf "%s/device-plugins/tandem" .Values.kubeletDir }}
{{- .Values.runDir | default (ternary "/run/tandem" $shared (or (eq .Values.mode "dra") (and .Values.gpu.enabled .Values.rdma.enabled))) }}
{{- end }}

{{/* The flags of both daemons; the folder of the device nodes is each one's own. */}}
{{- define "tandem.args" -}}
- --sysfs-root=/sys
- --kubelet-dir={{ .Values.kubeletDir }}
- --run-dir={{ include "tandem.runDir" . }}
{{- if include "tandem.topologyVolume" . }}
- --topology-file=/topology/topo.xml
{{- end }}
{{- if ne .Values.log.level "info" }}
- --log-level={{ .Values.log.level }}
{{- end }}
{{- if ne .Values.log.format "text" }}
- --log-format={{ .Values.log.format }}
{{- end }}
{{- if not .Values.preferredAllocation }}
- --preferred-allocation=false
{{- end }}
{{- with include "tandem.intent" . }}
- --intent={{ . }}
{{- end }}
{{- if and .Values.events (eq .Values.mode "device-plugin") }}
- --events
{{- end }}
{{- with .Values.alignment }}
- --alignment={{ . }}
{{- end }}
{{- with .Values.alignmentOptOut }}
- --alignment-opt-out={{ join "," . }}
{{- end }}
{{- with .Values.deviceAnnotations }}
- --device-annotations={{ join "," . }}
{{- end }}
{{- if ne .Values.deviceHealth "on" }}
- --device-health={{ .Values.deviceHealth }}
{{- end }}
{{- with .Values.publish }}
- --publish={{ join "," . }}
{{- end }}
{{- end }}

{{/* Where a daemon serves its probes and metrics. The host is not empty for a pod in the node's network: its probes are for the kubelet
alone, and everybody who reaches the node would reach its metrics. */}}
{{- define "tandem.watchArgs" -}}
{{- if .Values.health.port }}
- --health-probe-bind-address={{ .host }}:{{ .Values.health.port }}
{{- end }}
{{- if .Values.metrics.enabled }}
- --metrics-bind-address={{ if .host }}{{ .Values.metrics.hostAddress }}{{ end }}:{{ .Values.metrics.port }}
{{- end }}
{{- end }}

{{- define "tandem.watch" -}}
{{- if .Values.metrics.enabled }}
ports:
  - {name: metrics, containerPort: {{ .Values.metrics.port }}}
{{- end }}
{{- if .Values.health.port }}
{{- range $probe, $path := dict "livenessProbe" "/healthz" "readinessProbe" "/readyz" }}
{{- with index $.Values $probe }}
{{ $probe }}:
  httpGet:
    path: {{ $path }}
    port: {{ $.Values.health.port }}
    {{- with $.host }}
    host: {{ . }}
    {{- end }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where this pod runs: for events the node's name, for intent sources and publication its address too. Empty where nothing needs it. */}}
{{- define "tandem.nodeEnv" -}}
{{- $asks := or (include "tandem.intent" .) .Values.publish .perNode }}
{{- if or .Values.events $asks }}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}
{{- if $asks }}
- name: NODE_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
{{- end }}
{{- end }}

{{/* Tells Go's garbage collector of the memory limit of a container: without, it lets the heap grow to twice what is needed, whatever the
limit is. A fifth is left for what is not Go's heap: the program, the vendor's library, files in memory. Kubernetes can hand on all of a limit
only. Nothing where there is no limit, or where the environment says otherwise. Of resources and env. */}}
{{- define "tandem.memoryEnv" -}}
{{- $limit := dig "limits" "memory" "" (.resources | default dict) | default "" }}
{{- if kindIs "float64" $limit }}{{ $limit = int64 $limit }}{{ end }}
{{- $limit = toString $limit }}
{{- $number := regexFind "^[0-9.]+" $limit }}
{{- $units := dict "none" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 }}
{{- $unit := get $units (trimPrefix $number $limit | default "none") }}
{{- $own := false }}
{{- range .env }}{{ if eq .name "GOMEMLIMIT" }}{{ $own = true }}{{ end }}{{ end }}
{{- if and $number $unit (not $own) }}
- {name: GOMEMLIMIT, value: {{ printf "%dMiB" (int64 (divf (mulf (float64 $number) $unit 0.8) 1048576)) }}}
{{- end }}
{{- end }}

{{/* What both daemons mount. There is no volume for /sys: every container has its own read-only view of the same sysfs. Mounting the
node's would add what is mounted below it, the cgroup tree among others, and that is writable. */}}
{{- define "tandem.mounts" -}}
- {name: run-tandem, mountPath: {{ include "tandem.runDir" . }}}
- {name: device-plugins, mountPath: {{ .Values.kubeletDir }}/device-plugins}
- {name: pod-resources, mountPath: {{ .Values.kubeletDir }}/pod-resources, readOnly: true}
- {name: pods-api, mountPath: {{ .Values.kubeletDir }}/pods-api, readOnly: true}
- {name: claims, mountPath: {{ .Values.kubeletDir }}/plugins/tandem.dev, readOnly: true}
{{- if and .Values.publish .Values.publishKubeletDir }}
- {name: kubelet, mountPath: {{ .Values.kubeletDir }}, readOnly: true}
{{- end }}
{{- if eq (include "tandem.mountsCertificate" .) "true" }}
- {name: kubelet-certificate, mountPath: {{ .Values.kubeletDir }}/pki/kubelet.crt, readOnly: true}
{{- end }}
{{- if .Values.topologyFile.hostPath }}
- {name: topology, mountPath: /topology/topo.xml, readOnly: true}
{{- else if .Values.topologyFile.existingConfigMap }}
- {name: topology, mountPath: /topology, readOnly: true}
{{- end }}
{{- end }}

{{/* Whether the kubelet's certificate is mounted; all of kubeletDir has it already. */}}
{{- define "tandem.mountsCertificate" -}}
{{ and (ne .Values.kubeletCertificate "") (not (and .Values.publish .Values.publishKubeletDir)) }}
{{- end }}

{{- define "tandem.volumes" -}}
# Where tandem-gpu and tandem-rdma meet.
- name: run-tandem
  hostPath: {path: {{ include "tandem.runDir" . }}, type: DirectoryOrCreate}
# Its own socket, and the kubelet's to register at. The folder, not the socket: the kubelet makes a new one when it starts.
- name: device-plugins
  hostPath: {path: {{ .Values.kubeletDir }}/device-plugins, type: Directory}
# Asked which pod holds which devices. Read-only: connecting to a socket is not writing to the folder.
- name: pod-resources
  hostPath: {path: {{ .Values.kubeletDir }}/pod-resources, type: Directory}
# Asked what the pod that is being admitted wants. Kubelets before 1.37 have no such folder, and do not mind an empty one.
- name: pods-api
  hostPath: {path: {{ .Values.kubeletDir }}/pods-api, type: DirectoryOrCreate}
# Which devices pods have by claims, where the node was in mode dra (docs/dra.md): they are not given a second time.
- name: claims
  hostPath: {path: {{ .Values.kubeletDir }}/plugins/tandem.dev, type: DirectoryOrCreate}
{{- if and .Values.publish .Values.publishKubeletDir }}
# Its configuration, and which CPUs and memory containers have.
- name: kubelet
  hostPath: {path: {{ .Values.kubeletDir }}, type: Directory}
{{- end }}
{{- if eq (include "tandem.mountsCertificate" .) "true" }}
# The certificate with which the kubelet serves, alone: its key is in another file.
- name: kubelet-certificate
  hostPath: {path: {{ .Values.kubeletCertificate }}, type: File}
{{- end }}
{{- include "tandem.topologyVolume" . }}
{{- end }}

{{/* Empty without a topology file. */}}
{{- define "tandem.topologyVolume" -}}
{{- with .Values.topologyFile }}
{{- if or .hostPath .existingConfigMap }}
# Which devices share a switch, on guests that do not show it.
- name: topology
  {{- if .hostPath }}
  hostPath: {path: {{ .hostPath }}, type: File}
  {{- else }}
  configMap:
    name: {{ .existingConfigMap | quote }}
    items: [{key: {{ .configKey | quote }}, path: topo.xml}]
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tandem.cdiVolume" -}}
# Descriptions of devices for the container runtime.
- name: cdi
  hostPath: {path: {{ .Values.cdi.dir }}, type: DirectoryOrCreate}
{{- end }}

{{/* The type of the volume with the driver of NVIDIA's GPUs. A wrong path stops the pod with an event, as does a driver that is not there yet.
Only with the vendor auto may the folder be missing, on a node with AMD's GPUs. */}}
{{- define "tandem.driverRootType" -}}
{{ ternary "DirectoryOrCreate" "Directory" (and (ne .Values.gpu.vendor "nvidia") (ne .Values.gpu.driverRoot "/")) }}
{{- end }}

{{/* Whether containers get NVIDIA's GPUs only if NVIDIA's container runtime starts them, and no value says so: with the driver's files the
daemon alone works without this runtime. A file of configuration may say otherwise. */}}
{{- define "tandem.bareDriverRoot" -}}
{{- $gpu := .Values.gpu }}
{{- $passes := false }}
{{- range $gpu.env }}{{ if and (eq .name "PASS_DEVICE_SPECS") (eq (toString .value) "true") }}{{ $passes = true }}{{ end }}{{ end }}
{{- range $gpu.extraArgs }}{{ if hasPrefix "--pass-device-specs" . }}{{ $passes = true }}{{ end }}{{ end }}
{{- if and $gpu.enabled (has $gpu.vendor (list "auto" "nvidia")) $gpu.driverRoot (not $gpu.deviceListStrategy)
  (not $gpu.runtimeClassName) (not $passes) (not (or $gpu.existingConfigMap $gpu.configs.name $gpu.configs.map)) }}true{{ end }}
{{- end }}

{{/* What a container is told of its pairs, as JSON; an empty object for nothing. */}}
{{- define "tandem.exports" -}}
{{- $exports := dict }}
{{- range $key, $value := .Values.rdma.exports }}
{{- if $value }}{{ $_ := set $exports $key $value }}{{ end }}
{{- end }}
{{- toJson $exports }}
{{- end }}

{{/* What tandem-rdma offers: the configuration, with the exports in every resource that does not say itself what it exports. */}}
{{- define "tandem.config" -}}
{{ include "tandem.exported" (merge (dict "config" .Values.rdma.config) .) }}
{{- end }}

{{/* One configuration of VFs, as the value config, with the exports. */}}
{{- define "tandem.exported" -}}
{{- $config := deepCopy .config }}
{{- with include "tandem.exports" . | fromJson }}
{{- $exports := . }}
{{- range concat ($config.resourceList | default list) ($config.configList | default list) }}
{{- if not (hasKey . "tandem") }}{{ $_ := set . "tandem" $exports }}{{ end }}
{{- end }}
{{- end }}
{{- toPrettyJson $config }}
{{- end }}

{{/* By which labels nodes have GPUs of the vendor. */}}
{{- define "tandem.gpuTerms" -}}
{{- if has .Values.gpu.vendor (list "auto" "amd") }}
# Node Feature Discovery: a device of AMD's in class 12 (MI300 and later), 0380 (MI200) or 0300, or of whatever
# class where labels are by vendor alone.
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-1200_1002.present, operator: In, values: ["true"]}
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-0380_1002.present, operator: In, values: ["true"]}
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-0300_1002.present, operator: In, values: ["true"]}
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-1002.present, operator: In, values: ["true"]}
{{- end }}
{{- if has .Values.gpu.vendor (list "auto" "nvidia") }}
# Node Feature Discovery: a device of NVIDIA's in class 0302 or 0300, or of whatever class; and the label of GPU
# Feature Discovery.
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-0302_10de.present, operator: In, values: ["true"]}
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-0300_10de.present, operator: In, values: ["true"]}
- matchExpressions:
    - {key: feature.node.kubernetes.io/pci-10de.present, operator: In, values: ["true"]}
- matchExpressions:
    - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
{{- end }}
{{- end }}
