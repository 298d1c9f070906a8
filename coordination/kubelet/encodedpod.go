// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EncodedPod is a pod as the kubelet sends it. A pod's author decides on its size: only the few fields that
// are read are decoded.
type EncodedPod struct {
	content []byte
	isJSON  bool
}

var sumSeed = maphash.MakeSeed()

// Sum returns a number that pods with the same content have in common, and other pods have not.
func (e EncodedPod) Sum() uint64 { return maphash.Bytes(sumSeed, e.content) }

// Decode decodes the names, UID, resources and status of a pod, and annotations with some keys. It replaces
// the content of the given pod, and uses the memory of its containers again. Of the statuses of containers
// remains whether there are any, and whether one of the containers runs.
func (e EncodedPod) Decode(pod *corev1.Pod, annotations ...string) error {
	init, apps := pod.Spec.InitContainers[:0], pod.Spec.Containers[:0]
	*pod = corev1.Pod{Spec: corev1.PodSpec{InitContainers: init, Containers: apps}}
	if e.isJSON {
		return e.decodeJSON(pod, annotations)
	}
	d := podDecoder{pod, annotations}
	err := eachField(e.content, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			return eachField(value, d.decodeMetadata)
		case 2:
			return eachField(value, d.decodeSpec)
		case 3:
			return eachField(value, d.decodeStatus)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("decode a pod of the kubelet: %w", err)
	}
	return nil
}

// eachField calls see with the fields of a message that are messages, texts or bytes.
func eachField(message []byte, see func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(field, kind, message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := see(field, value); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

// podDecoder decodes parts of a pod. The numbers of the fields are those of generated.proto in k8s.io/api and
// k8s.io/apimachinery.
type podDecoder struct {
	*corev1.Pod
	annotations []string
}

func (d podDecoder) decodeMetadata(field protowire.Number, value []byte) error {
	switch field {
	case 1:
		d.Name = string(value)
	case 3:
		d.Namespace = string(value)
	case 5:
		d.UID = types.UID(value)
	case 8:
		return d.CreationTimestamp.Unmarshal(value)
	case 12:
		return d.decodeAnnotation(value)
	}
	return nil
}

// decodeAnnotation decodes an entry of the map of annotations.
func (d podDecoder) decodeAnnotation(entry []byte) error {
	var key, text []byte
	err := eachField(entry, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			key = value
		case 2:
			text = value
		}
		return nil
	})
	for _, wanted := range d.annotations {
		if wanted == string(key) {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, wanted, string(text))
		}
	}
	return err
}

func (d podDecoder) decodeSpec(field protowire.Number, value []byte) error {
	var err error
	switch field {
	case 2:
		d.Spec.Containers, err = appendContainer(d.Spec.Containers, value)
	case 20:
		d.Spec.InitContainers, err = appendContainer(d.Spec.InitContainers, value)
	case 40:
		d.Spec.Resources = &corev1.ResourceRequirements{}
		return d.Spec.Resources.Unmarshal(value)
	}
	return err
}

func appendContainer(to []corev1.Container, message []byte) ([]corev1.Container, error) {
	to = append(to, corev1.Container{})
	c := &to[len(to)-1]
	return to, eachField(message, func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			c.Name = string(value)
		case 8:
			return c.Resources.Unmarshal(value)
		case 24:
			policy := corev1.ContainerRestartPolicy(value)
			c.RestartPolicy = &policy
		}
		return nil
	})
}

func (d podDecoder) decodeStatus(field protowire.Number, value []byte) error {
	s := &d.Status
	switch field {
	case 1:
		s.Phase = corev1.PodPhase(value)
	case 4:
		s.Reason = string(value)
	case 7:
		s.StartTime = &metav1.Time{}
		return s.StartTime.Unmarshal(value)
	case 8:
		return eachField(value, isBegun(&s.ContainerStatuses))
	case 9:
		s.QOSClass = corev1.PodQOSClass(value)
	case 10:
		return eachField(value, isBegun(&s.InitContainerStatuses))
	case 13:
		return eachField(value, isBegun(&s.EphemeralContainerStatuses))
	case 18:
		s.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{}
		return s.ExtendedResourceClaimStatus.Unmarshal(value)
	}
	return nil
}

// isBegun returns a function for the fields of a container's status.
func isBegun(statuses *[]corev1.ContainerStatus) func(protowire.Number, []byte) error {
	if len(*statuses) == 0 {
		*statuses = make([]corev1.ContainerStatus, 1)
	}
	return func(field protowire.Number, state []byte) error {
		if field != 2 {
			return nil
		}
		return eachField(state, func(field protowire.Number, _ []byte) error {
			if field == 2 {
				(*statuses)[0].State.Running = &corev1.ContainerStateRunning{}
			}
			return nil
		})
	}
}

// podFields are the fields of a pod in JSON that are read.
type podFields struct {
	Metadata struct {
		Namespace, Name   string
		UID               types.UID
		CreationTimestamp metav1.Time
		Annotations       map[string]string
	}
	Spec struct {
		InitContainers, Containers []containerFields
		Resources                  *corev1.ResourceRequirements
	}
	Status struct {
		Phase     corev1.PodPhase
		Reason    string
		StartTime *metav1.Time
		QOSClass  corev1.PodQOSClass

		ContainerStatuses, InitContainerStatuses, EphemeralContainerStatuses []statusFields

		ExtendedResourceClaimStatus *corev1.PodExtendedResourceClaimStatus
	}
}

type containerFields struct {
	Name          string
	RestartPolicy *corev1.ContainerRestartPolicy
	Resources     corev1.ResourceRequirements
}

type statusFields struct{ State struct{ Running *struct{} } }

func (e EncodedPod) decodeJSON(pod *corev1.Pod, annotations []string) error {
	var f podFields
	if err := json.Unmarshal(e.content, &f); err != nil {
		return fmt.Errorf("decode a pod of the kubelet: %w", err)
	}
	pod.Namespace, pod.Name, pod.UID = f.Metadata.Namespace, f.Metadata.Name, f.Metadata.UID
	pod.CreationTimestamp = f.Metadata.CreationTimestamp
	for _, key := range annotations {
		if text, ok := f.Metadata.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, text)
		}
	}
	for _, c := range f.Spec.InitContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c.newContainer())
	}
	for _, c := range f.Spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, c.newContainer())
	}
	pod.Spec.Resources = f.Spec.Resources
	pod.Status = corev1.PodStatus{
		Phase: f.Status.Phase, Reason: f.Status.Reason, StartTime: f.Status.StartTime,
		QOSClass:                    f.Status.QOSClass,
		ContainerStatuses:           reduceStatuses(f.Status.ContainerStatuses),
		InitContainerStatuses:       reduceStatuses(f.Status.InitContainerStatuses),
		EphemeralContainerStatuses:  reduceStatuses(f.Status.EphemeralContainerStatuses),
		ExtendedResourceClaimStatus: f.Status.ExtendedResourceClaimStatus,
	}
	return nil
}

func (c containerFields) newContainer() corev1.Container {
	return corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: c.Resources}
}

func reduceStatuses(statuses []statusFields) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, min(1, len(statuses)))
	for _, s := range statuses {
		if s.State.Running != nil {
			kept[0].State.Running = &corev1.ContainerStateRunning{}
		}
	}
	return kept
}

// HasStarted reports whether a kubelet has admitted and started a pod.
func HasStarted(pod *corev1.Pod) bool {
	return pod.Status.StartTime != nil || pod.Status.Phase == corev1.PodRunning ||
		len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0
}

// HasEnded reports whether a pod has ended and no container of the pod runs any more. The kubelet sets the
// phase of an evicted pod before the containers stop.
func HasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return false
	}
	isRunning := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses), isRunning)
}
