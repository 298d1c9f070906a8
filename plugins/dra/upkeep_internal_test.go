// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
)

// prepared writes a checkpoint with these claims, each with a GPU of its name.
func prepared(t *testing.T, dir string, names ...string) {
	t.Helper()
	var list []claims.Claim
	for _, name := range names {
		list = append(list, claims.Claim{
			UID: types.UID("uid-" + name), Namespace: "team", Name: name,
			Devices: []claims.Prepared{{Request: "r", Device: "gpu-" + name, GPUs: []string{name}, Group: name}},
		})
	}
	checkpointed(t, dir, list)
}

func checkpointed(t *testing.T, dir string, list []claims.Claim) {
	t.Helper()
	encoded, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]any{
		"version": 1, "checksum": crc32.ChecksumIEEE(encoded), "claims": json.RawMessage(encoded),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, claims.FileName), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// partsIn are the parts of a driver with its files in a folder.
func partsIn(dir string, config Config) parts {
	p := newParts(config)
	p.preparer = claims.New(claims.Options{Dir: dir, CDIDir: config.CDIDir, Log: config.Log})
	return p
}

func newClaimService(t *testing.T, server *apiserver.Server, dir string, log *slog.Logger) *claimService {
	t.Helper()
	p := partsIn(dir, Config{
		Client: client.New(server), CDIDir: t.TempDir(), Log: log, Kubelet: listingKubelet{server: server},
	})
	s := &claimService{
		parts: p, owners: newOwners(), viewer: newViewer(p), statuses: newStatuses(p.config.Client, log),
	}
	t.Cleanup(s.statuses.queue.ShutDown)
	return s
}

// listingKubelet lists the driver's pod and those of the API server.
type listingKubelet struct {
	Kubelet
	server *apiserver.Server
}

func (k listingKubelet) List(context.Context) (kubelet.View, error) {
	view := kubelet.View{Pods: []kubelet.Pod{{Namespace: "kube-system", Name: "driver"}}}
	for _, pod := range apiserver.List[*corev1.Pod](k.server) {
		view.Pods = append(view.Pods, kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name})
	}
	return view, nil
}

// A claim that exists no more is taken back, once the kubelet has had the time to do so; one of which the API
// server does not tell is not.
func TestOrphans(t *testing.T) {
	server := apiserver.New()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := newClaimService(t, server, dir, log)
	prepared(t, dir, "alive", "another", "gone")
	for name, uid := range map[string]types.UID{"alive": "uid-alive", "another": "of another one"} {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: uid}}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train-0"}}
		server.Put(claim)
	}
	gone, began := newOrphanCollector(d), time.Now()
	for _, step := range []struct {
		after time.Duration
		away  bool
		pause time.Duration // at the most
		left  []string
	}{
		{0, true, claimsRetry, []string{"alive", "another", "gone"}},
		{orphanPatience, false, orphanPause, []string{"alive", "another", "gone"}},
		{2*orphanPatience - time.Second, false, orphanPause, []string{"alive", "another", "gone"}},
		{2 * orphanPatience, true, claimsRetry, []string{"alive", "another", "gone"}},
		{2*orphanPatience + time.Second, false, 2 * claimsPause, []string{"alive"}},
		{time.Hour, false, 2 * claimsPause, []string{"alive"}},
	} {
		if server.Heal(); step.away {
			server.Leave()
		}
		if pause := gone.collectOrphans(t.Context(), began.Add(step.after)); pause > step.pause {
			t.Errorf("after %s: looks again after %s", step.after, pause)
		}
		list, err := d.preparer.Prepared(d.newest.Get().State.Machine)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, c := range list {
			left = append(left, c.Name)
		}
		if !slices.Equal(left, step.left) {
			t.Errorf("after %s: prepared %v, want %v", step.after, left, step.left)
		}
	}
	if len(gone.gone) > 0 {
		t.Errorf("remembered: %v", gone.gone)
	}
	if c := (claims.Claim{UID: "uid-alive"}); d.owners.outcomeOf(c).firstPod() != "train-0" {
		t.Errorf("owner %v", d.owners.outcomeOf(c))
	}
}

// TestOrphanInUse: a claim that somebody deleted by force is not taken back as long as a pod that it was
// prepared for runs, nor as long as a later pod runs, of which the kubelet does not tell the driver, unless
// that pod has another claim of the same name.
func TestOrphanInUse(t *testing.T) {
	const name = "train"
	podOf := func(pod string, uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: pod, UID: uid}}
	}
	later := podOf("train-1", "uid-train-1")
	later.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "shared", ResourceClaimName: new(name)}}
	another := reserved("train-1")
	another.UID = "of another one"
	type objects = []apiserver.Object
	for what, c := range map[string]struct {
		known   *resourceapi.ResourceClaim // as the driver has learnt its pods
		objects objects
		left    int
	}{
		"its pod runs":                    {reserved("train-0"), objects{podOf("train-0", "uid-train-0")}, 1},
		"another pod has its pod's name":  {reserved("train-0"), objects{podOf("train-0", "uid-next")}, 0},
		"a later pod runs":                {reserved(), objects{later}, 1},
		"the later pod has another claim": {reserved(), objects{later, another}, 0},
		"the later pod uses no claim":     {reserved(), objects{podOf("train-1", "uid-train-1")}, 0},
	} {
		dir := t.TempDir()
		d := newClaimService(t, apiserver.New(c.objects...), dir, slog.New(slog.DiscardHandler))
		prepared(t, dir, name)
		d.owners.learnPods(c.known)
		gone, now := newOrphanCollector(d), time.Now()
		for range 3 {
			now = now.Add(orphanPatience)
			gone.collectOrphans(t.Context(), now)
		}
		if list, err := d.preparer.Prepared(d.newest.Get().State.Machine); err != nil || len(list) != c.left {
			t.Errorf("%s: prepared %v, %v; want %d", what, list, err, c.left)
		}
	}
}

// reserved is a prepared claim "train", reserved for pods.
func reserved(names ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "uid-train"},
	}
	for _, name := range names {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID("uid-" + name)})
	}
	return claim
}

// tally counts claims by call.
type tally map[string]int

func (tally) Registered(string) {}
func (c tally) Claims(call string, _ time.Duration, claims, failed int) {
	c[call] += claims
	c[call+" failed"] += failed
}

// TestUnprepare: of a claim that is released nothing is left, and its status is not written any more. One
// that is not released keeps all.
func TestUnprepare(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		dir, counted := t.TempDir(), tally{}
		d := newClaimService(t, apiserver.New(), dir, slog.New(slog.DiscardHandler))
		d.config.Observer = counted
		prepared(t, dir, "train")
		claim := kubeletplugin.NamespacedObject{UID: "uid-train"}
		claim.Namespace, claim.Name = "team", "train"
		d.owners.given[claim.UID] = outcome{Claim: claims.Claim{UID: claim.UID}}
		d.statuses.queueStatus(reserved("train-0"), []resourceapi.AllocatedDeviceStatus{{Device: "gpu"}})
		left := 0
		if damaged {
			left = 1
			d.preparer.Dir = filepath.Join(dir, claims.FileName) // no folder
		}
		_, err := d.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{claim})
		if err != nil || len(d.owners.given) != left || len(d.statuses.due) != left {
			t.Errorf("damaged %t: %v, %d owners, %d statuses", damaged, err, len(d.owners.given), len(d.statuses.due))
		}
		if counted["unprepare"] != 1 || counted["unprepare"+" failed"] != left {
			t.Errorf("damaged %t: counted %v", damaged, counted)
		}
	}
}

// The status of a claim that could not be written is written later: neither a refusal nor the end of a
// driver, which forgets its queue, is for ever. A status that is there is left alone.
func TestStatusLater(t *testing.T) {
	server, forbidden := apiserver.New(reserved("train-0")), true
	server.Refuse = func(r *http.Request) error {
		if forbidden && r.Method == http.MethodPatch {
			return apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "train", nil)
		}
		return nil
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := newClaimService(t, server, dir, log)
	prepared(t, dir, "train")
	collector := newOrphanCollector(d)
	for _, step := range []struct {
		forbidden bool
		queued    int
		devices   int
	}{{true, 1, 0}, {false, 1, 1}, {false, 0, 1}} {
		forbidden = step.forbidden
		collector.collectOrphans(t.Context(), time.Now())
		if queued := d.statuses.queue.Len(); queued != step.queued {
			t.Fatalf("queued %d, want %d", queued, step.queued)
		}
		if step.queued > 0 {
			uid, _ := d.statuses.queue.Get()
			d.statuses.applyStatus(t.Context(), uid)
			d.statuses.queue.Done(uid)
		}
		told := apiserver.Get[*resourceapi.ResourceClaim](server, "team", "train").Status.Devices
		if len(told) != step.devices {
			t.Errorf("status %v, want %d devices", told, step.devices)
		}
	}
}

// TestFilesAreRepairedPeriodically: files of claims are compared with the machine periodically, while nothing
// changes: here a CDI spec, and a temporary file in the run directory, that a killed process left behind.
func TestFilesAreRepairedPeriodically(t *testing.T) {
	dir, cdiDir, runDir, log := t.TempDir(), t.TempDir(), t.TempDir(), slog.New(slog.DiscardHandler)
	temporary := filepath.Join(runDir, ".tandem-of-a-killed-process")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		files := &fileRestorer{
			parts:  partsIn(dir, Config{RunDir: runDir, CDIDir: cdiDir, Log: log}),
			failed: &system.Newest[error]{},
		}
		if err := os.WriteFile(temporary, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(temporary, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); files.repairPeriodically(ctx) }()
		synctest.Wait()
		left := filepath.Join(cdiDir, "tandem.dev-claim_uid-ended.json")
		for range 2 {
			if err := os.WriteFile(left, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			checkpointed(t, dir, nil)
			<-time.After(filesPause)
			synctest.Wait()
			if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file of a claim that has ended: %v", err)
			}
			if _, err := os.Stat(temporary); err != nil {
				t.Errorf("a temporary file that another process may be writing: %v", err)
			}
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if _, err := os.Stat(temporary); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an abandoned temporary file: %v", err)
		}
		cancel()
		<-ended
	})
}
