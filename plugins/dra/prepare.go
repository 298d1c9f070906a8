// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// claimService prepares and unprepares claims for the kubelet, and records the results for people.
type claimService struct {
	parts
	viewer    *viewer
	publisher *publisher
	owners    *owners
	statuses  *statuses

	refused system.Trigger // a claim was not prepared
}

// errDrains is the answer of a draining driver.
var errDrains = errors.New("prepare claim: this node is in the mode of device plugins, and its DRA driver " +
	"only unprepares claims: the pod needs another node")

// PrepareResourceClaims prepares the claims of a pod.
func (s *claimService) PrepareResourceClaims(
	ctx context.Context, list []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	if s.config.Drain {
		return nil, errDrains
	}
	began := time.Now()
	if err := s.awaitFeatures(ctx); err != nil {
		return nil, err
	}
	state := s.newest.Get().State
	prepared, cause := s.preparer.Prepare(state, list, kubelet.Reading[[]*corev1.Pod]{})
	if errors.Is(cause, kubelet.ErrNotRead) {
		prepared, cause = s.preparer.Prepare(state, list, kubelet.Read(s.readPods(ctx, list)))
	}
	// a claim that is not shown is recorded, with its files: a repeated call finds it
	if err := s.publisher.awaitShown(ctx, prepared); err != nil {
		prepared, cause = nil, errors.Join(cause, err)
	}
	answers := make(map[types.UID]kubeletplugin.PrepareResult, len(list))
	took, failed := time.Since(began), 0
	for _, claim := range list {
		c, isPrepared := claims.FindClaim(prepared, claim.UID)
		err := cause
		if isPrepared {
			err = nil
		}
		answers[claim.UID] = kubeletplugin.PrepareResult{Devices: c.Answer(), Err: err}
		s.owners.recordOutcome(claim, began, took, err)
		log := s.config.Log.With("claim", claim.Namespace+"/"+claim.Name, "took", took)
		if err != nil {
			failed++
			log.Warn("claim not prepared", "error", err)
		} else {
			log.Info("prepared", "devices", deviceNames(c))
			s.writeStatus(state, claim, c)
		}
	}
	s.observeCall("prepare", took, len(list), failed)
	if failed > 0 {
		s.refused.Fire()
	}
	s.viewer.changed.Fire() // devices of claims stay published
	return answers, nil
}

// podLimit is the timeout for reading the pods of claims. The kubelet waits for 45 s.
const podLimit = 5 * time.Second

// readPods returns the pods for which claims are reserved, without ended ones.
func (s *claimService) readPods(
	ctx context.Context, list []*resourceapi.ResourceClaim,
) (pods []*corev1.Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, podLimit)
	defer cancel()
	namespace := list[0].Namespace
	for _, reserved := range claims.PodsOf(list...) {
		pod, err := s.config.Client.CoreV1().Pods(namespace).Get(ctx, reserved.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && pod.UID != reserved.UID: // the pod has ended
		case err != nil:
			return nil, fmt.Errorf("find pod %s/%s: %w", namespace, reserved.Name, err)
		default:
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// awaitFeatures asks the API server for its features if they are not known yet: the meaning of devices
// depends on them.
func (s *claimService) awaitFeatures(ctx context.Context) error {
	if s.newest.Get().Gates.Known {
		return nil
	}
	if err := s.viewer.gates.askFeatures(ctx); err != nil {
		return fmt.Errorf("prepare claims: %w", err)
	}
	return s.viewer.awaitUpdate(ctx)
}

func deviceNames(c claims.Claim) []string {
	names := make([]string, 0, len(c.Devices))
	for _, device := range c.Devices {
		names = append(names, device.Device)
	}
	return names
}

// writeStatus queues the devices of a prepared claim for the claim's status. The kubelet's answer does not
// wait for the API server.
func (s *claimService) writeStatus(state claims.State, claim *resourceapi.ResourceClaim, c claims.Claim) {
	if len(c.Devices) > 0 {
		s.statuses.queueStatus(claim, s.preparer.Status(state, c, metav1.Now()))
	}
}

// completeStatus queues the devices of a prepared claim if its status lacks any of them: they were not
// written before the driver ended, or were refused. Devices that are there stay as they are: they contain
// the netdevs from before CNI plugins took them.
func (s *claimService) completeStatus(claim *resourceapi.ResourceClaim, c claims.Claim) {
	if lacksDevice(claim, c) {
		s.writeStatus(s.newest.Get().State, claim, c)
	}
}

// UnprepareResourceClaims releases the devices of claims.
func (s *claimService) UnprepareResourceClaims(
	_ context.Context, list []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	began := time.Now()
	err := s.preparer.Unprepare(list)
	answers := make(map[types.UID]error, len(list))
	took, failed := time.Since(began), 0
	for _, claim := range list {
		answers[claim.UID] = err
		log := s.config.Log.With("claim", claim.Namespace+"/"+claim.Name, "took", took)
		if err != nil {
			failed++
			log.Warn("claim not unprepared", "error", err)
			continue
		}
		s.owners.forgetClaim(claim.UID)
		s.statuses.dropStatus(claim.UID)
		log.Info("unprepared")
	}
	s.observeCall("unprepare", took, len(list), failed)
	s.viewer.changed.Fire()
	return answers, nil
}

func (s *claimService) observeCall(call string, took time.Duration, claims, failed int) {
	if s.config.Observer != nil {
		s.config.Observer.Claims(call, took, claims, failed)
	}
}

// fieldManager is the field manager of the driver's entries in the status of claims.
const fieldManager = "tandem-dra"

// Timeout of the API server for one claim, and minimum and maximum pause after a failure.
const (
	statusTimeout  = 10 * time.Second
	statusRetry    = 200 * time.Millisecond
	statusRetryMax = 30 * time.Second
)

// statuses writes the devices of claims to their status. It never delays a prepare call: a claim works
// without its status.
type statuses struct {
	client kubernetes.Interface
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu  sync.Mutex
	due map[types.UID]*apply.ResourceClaimApplyConfiguration
}

func newStatuses(client kubernetes.Interface, log *slog.Logger) *statuses {
	return &statuses{
		client: client, log: log,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](statusRetry, statusRetryMax)),
		due: map[types.UID]*apply.ResourceClaimApplyConfiguration{},
	}
}

// queueStatus queues a claim's devices for writing, unless they are already written.
func (s *statuses) queueStatus(
	claim *resourceapi.ResourceClaim, devices []resourceapi.AllocatedDeviceStatus,
) {
	if hasStatus(claim, devices) {
		return
	}
	status := apply.ResourceClaimStatus()
	for _, d := range devices {
		status.WithDevices(deviceStatus(d))
	}
	s.mu.Lock()
	s.due[claim.UID] = apply.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(status)
	s.mu.Unlock()
	s.queue.Add(claim.UID)
}

// dropStatus removes a claim from the queue.
func (s *statuses) dropStatus(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, uid)
}

// hasStatus reports whether a claim's status contains these devices.
func hasStatus(claim *resourceapi.ResourceClaim, devices []resourceapi.AllocatedDeviceStatus) bool {
	for _, d := range devices {
		is := func(has resourceapi.AllocatedDeviceStatus) bool {
			return has.Driver == d.Driver && has.Pool == d.Pool && has.Device == d.Device &&
				reflect.DeepEqual(has.NetworkData, d.NetworkData) && len(has.Conditions) > 0 &&
				(has.Data != nil && d.Data != nil && string(has.Data.Raw) == string(d.Data.Raw))
		}
		if !slices.ContainsFunc(claim.Status.Devices, is) {
			return false
		}
	}
	return true
}

// lacksDevice reports whether a claim's status has no entry for one of the prepared devices.
func lacksDevice(claim *resourceapi.ResourceClaim, c claims.Claim) bool {
	return slices.ContainsFunc(c.Devices, func(d claims.Prepared) bool {
		return !slices.ContainsFunc(claim.Status.Devices, func(has resourceapi.AllocatedDeviceStatus) bool {
			return has.Driver == pool.Driver && has.Pool == d.Pool && has.Device == d.Device
		})
	})
}

func deviceStatus(d resourceapi.AllocatedDeviceStatus) *apply.AllocatedDeviceStatusApplyConfiguration {
	status := apply.AllocatedDeviceStatus().WithDriver(d.Driver).WithPool(d.Pool).WithDevice(d.Device)
	for _, c := range d.Conditions {
		status.WithConditions(applymeta.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
			WithMessage(c.Message).WithLastTransitionTime(c.LastTransitionTime))
	}
	if d.Data != nil {
		status.WithData(*d.Data)
	}
	if n := d.NetworkData; n != nil {
		status.WithNetworkData(apply.NetworkDeviceData().WithInterfaceName(n.InterfaceName).
			WithHardwareAddress(n.HardwareAddress).WithIPs(n.IPs...))
	}
	return status
}

// writeQueued writes until the queue is shut down and empty, or ctx is done.
func (s *statuses) writeQueued(ctx context.Context) {
	for {
		uid, end := s.queue.Get()
		if end || ctx.Err() != nil {
			return
		}
		s.applyStatus(ctx, uid)
		s.queue.Done(uid)
	}
}

// applyStatus writes the status of a claim and retries until the claim is gone or replaced.
func (s *statuses) applyStatus(ctx context.Context, uid types.UID) {
	s.mu.Lock()
	claim := s.due[uid]
	s.mu.Unlock()
	if claim == nil {
		s.queue.Forget(uid)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, err := s.client.ResourceV1().ResourceClaims(*claim.Namespace).ApplyStatus(ctx, claim,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	switch {
	case err == nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The claim is gone or replaced, or has another allocation.
		s.log.Debug("status of a claim not written", "claim", *claim.Namespace+"/"+*claim.Name, "error", err)
	case apierrors.IsForbidden(err):
		s.log.Warn("status of a claim lacks its devices", "claim", *claim.Namespace+"/"+*claim.Name,
			"driver", pool.Driver, "error", err)
	default:
		s.queue.AddRateLimited(uid)
		return
	}
	s.queue.Forget(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due[uid] == claim {
		delete(s.due, uid)
	}
}
