// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestPolicies applies the manifests and tries what they forbid.
func TestPolicies(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		o.Alone = true
		c := startCluster(t, o)
		c.apply(manifests)
		c.apply(templates)
		c.node("a")
		c.node("b")
		t.Run("slices of another node", c.otherNode)
		t.Run("more than 12 that nothing tells apart", c.tooMany)
	})
}

// otherNode has the daemon of a node write slices of its own node, and of another one.
func (c *cluster) otherNode(t *testing.T) {
	p := form{counters: true, taints: true}.build(machine(t, "oci-mi300x-derived", 2))
	daemon := *c
	daemon.Interface = c.Client(c.Bearer(c.token(c.daemonPod("tandem-dra-a", "a"))))
	if _, err := daemon.publish(t.Context(), "a", p); err != nil {
		t.Errorf("the daemon on node a cannot publish its devices: %v", err)
	}
	c.refused(t, "the token of tandem-dra on node a is for the slices of that node alone", func() error {
		slice := slicesOf("b", p)[0]
		_, err := daemon.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
		if err == nil {
			err = c.ResourceV1().ResourceSlices().Delete(t.Context(), slice.Name, metav1.DeleteOptions{})
		}
		return err
	})
	c.refused(t, "the token of tandem-dra on node a is for the pool of that node alone", func() error {
		slice := slicesOf("a", p)[0]
		slice.Name, slice.Spec.Pool.Name = "of-b", "b"
		_, err := daemon.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
		if err == nil {
			err = c.ResourceV1().ResourceSlices().Delete(t.Context(), slice.Name, metav1.DeleteOptions{})
		}
		return err
	})
	if _, err := c.publish(t.Context(), "b", p); err != nil {
		t.Fatal(err)
	}
	c.refused(t, "the token of tandem-dra on node a is for the slices of that node alone", func() error {
		return daemon.ResourceV1().ResourceSlices().Delete(t.Context(), slicesOf("b", p)[0].Name,
			metav1.DeleteOptions{})
	})
	_, err := daemon.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the daemon lists secrets: %v", err)
	}
}

// tooMany asks for 12 and 13 pairs.
func (c *cluster) tooMany(t *testing.T) {
	create := func(count int) error {
		claims := c.ResourceV1().ResourceClaims(namespace)
		_, err := claims.Create(t.Context(), &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "many"}, Spec: resourceapi.ResourceClaimSpec{Devices: pairsOf(count)},
		}, metav1.CreateOptions{})
		if err == nil {
			err = claims.Delete(t.Context(), "many", metav1.DeleteOptions{})
		}
		return err
	}
	c.refused(t, "more than 12 devices of pair.tandem.dev", func() error { return create(13) })
	if err := create(12); err != nil {
		t.Errorf("twelve pairs are refused: %v", err)
	}
	pods := func(count int) error {
		pod := resourcesPod("many", map[string]int{"tandem.dev/pair": count})
		_, err := c.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{"All"}})
		return err
	}
	c.refused(t, "more than 12 of tandem.dev/pair", func() error { return pods(13) })
	if err := pods(12); err != nil {
		t.Errorf("a pod with twelve pairs is refused: %v", err)
	}
}

// refused waits until something is refused with a sentence: the API server takes a second or two until it
// knows a policy.
func (c *cluster) refused(t *testing.T, sentence string, try func() error) {
	t.Helper()
	eventually(t, func() error {
		err := try()
		if err == nil {
			return fmt.Errorf("not refused: %s", sentence)
		}
		if !strings.Contains(err.Error(), sentence) {
			t.Errorf("refused with %q, which does not say %q", err, sentence)
		}
		return nil
	})
}
