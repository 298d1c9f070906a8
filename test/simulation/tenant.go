// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/tenant"
)

// Number of a tenant's pods, and the size of each in bytes. They are small, because the coordinator reads
// them at each question: package tenant has the largest.
const (
	tenantPods = 2
	tenantSize = 16 << 10
)

// Pods of a tenant, which no simulation changes.
var (
	// runningPods run, without devices.
	runningPods = sync.OnceValue(func() []corev1.Pod {
		return tenant.Pods(tenantPods, tenantSize, tenant.Roles)
	})
	// refusedPods have requested devices.
	refusedPods = sync.OnceValue(func() []corev1.Pod {
		devices := tenant.Devices("1", model.GPUs, model.VFs)
		return tenant.Refused("UnexpectedAdmissionError", tenant.Pods(tenantPods, tenantSize, devices))
	})
)

// crowding returns a condition under which a tenant's pods are in the list, until the next storm.
func crowding(pods func() []corev1.Pod) func(*Simulation) error {
	return func(s *Simulation) error {
		s.records.crowd(pods())
		return nil
	}
}

// readsPods reports whether the coordinator reads all pods.
func readsPods(s *Simulation) bool { return s.options.Source != "" }

// crowd adds pods to the list, in place of those added before.
func (r *records) crowd(pods []corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenant = pods
}
