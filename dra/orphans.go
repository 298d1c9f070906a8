// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/dra/claims"
)

// How often the API server is asked for the claims that are prepared: in general, while one of them is gone,
// and after the API server did not tell. A claim that is gone is taken back after orphanPatience, unless a
// pod that it was prepared for runs: a kubelet that knows of it takes it back itself once the pods have
// ended, at the latest when it next looks through its claims, which it does every minute (reconcileLoop in
// pkg/kubelet/cm/dra/manager.go).
const (
	claimsPause    = 10 * time.Minute
	orphanPause    = 30 * time.Second
	claimsRetry    = 5 * time.Second
	orphanPatience = 3 * time.Minute
)

// orphans are the prepared claims that the API server does not have, by UID, and since when that is known.
type orphans map[types.UID]time.Time

// watchClaims looks after the prepared claims until ctx is done: from time to time, and when a claim was
// refused, for another one may hold its devices that is no more.
func (d *Driver) watchClaims(ctx context.Context) {
	gone := orphans{}
	for {
		pause := d.lookAfterClaims(ctx, gone, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-d.refused:
		case <-time.After(pause):
		}
	}
}

// lookAfterClaims asks the API server for the prepared claims. It notes for which pods they are, and takes
// those back that have been gone for some time. It returns when to look again.
func (d *Driver) lookAfterClaims(ctx context.Context, gone orphans, now time.Time) (pause time.Duration) {
	prepared, err := d.preparer.Prepared()
	if err != nil {
		return claimsRetry
	}
	pause = wait.Jitter(claimsPause, 0.2)
	since := orphans{}
	for _, c := range prepared {
		if c.Name == "" { // no more is known of it than its UID
			continue
		}
		claim, err := d.Client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		switch {
		case err == nil && claim.UID == c.UID:
			d.owners.learn(claim)
			continue
		case err != nil && !apierrors.IsNotFound(err):
			pause = min(pause, claimsRetry)
			if first, before := gone[c.UID]; before {
				since[c.UID] = first
			}
			continue
		}
		first, before := gone[c.UID]
		if !before {
			first = now
		}
		if now.Sub(first) < orphanPatience || d.isUsed(ctx, c) || !d.takeBack(ctx, c) {
			since[c.UID] = first
			pause = min(pause, orphanPause)
		}
	}
	clear(gone)
	maps.Copy(gone, since)
	return pause
}

// isUsed reports whether a pod that a claim was prepared for runs, or nobody tells that it does not: somebody
// who deletes a claim by force does not end its pods.
func (d *Driver) isUsed(ctx context.Context, c claims.Claim) bool {
	of := d.owners.of(c)
	for i, name := range of.Pods {
		pod, err := d.Client.CoreV1().Pods(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		isGone := apierrors.IsNotFound(err) || err == nil && pod.UID != of.PodUIDs[i]
		if !isGone && (err != nil || !holders.HasEnded(pod)) {
			return true
		}
	}
	return false
}

// takeBack unprepares a claim that exists no more, and reports whether that succeeded.
func (d *Driver) takeBack(ctx context.Context, c claims.Claim) bool {
	d.Log.Warn("a prepared claim exists no more, and the kubelet has not given it back: it is taken back",
		"claim", c.Namespace+"/"+c.Name, "uid", c.UID)
	answers, err := d.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{
		NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID,
	}})
	return err == nil && answers[c.UID] == nil
}
