// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// tellUnsound forwards the unsound devices of claims periodically until ctx is done.
func (t *teller) tellUnsound(ctx context.Context, to func([]coordination.Unsound)) {
	coordination.LookForUnsound(ctx, func() {
		if list, known := t.unsound(); known {
			to(list)
		}
	})
}

// unsound returns the unsound devices of the present view with a claim's pod; false if the claims are
// unknown.
func (t *teller) unsound() (list []coordination.Unsound, known bool) {
	prepared, err := t.preparer.Prepared()
	if err != nil {
		return nil, false // Status reports the error
	}
	uids := map[kubelet.Pod]string{}
	for _, c := range prepared {
		o := t.owners.of(c)
		for _, pod := range o.Pods {
			uids[kubelet.Pod{Namespace: o.Namespace, Name: pod.Name}] = string(pod.UID)
		}
	}
	return coordination.UnsoundOf(t.resources(t.newest.get()), uids), true
}
