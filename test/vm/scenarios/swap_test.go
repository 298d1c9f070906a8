// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"testing"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

func TestShared(t *testing.T) {
	t.Parallel()
	has := func(pod string, devices ...string) holder {
		return holder{pod, &cluster.Outcome{Containers: []cluster.View{{GPUs: devices[:1], VFs: devices[1:]}}}}
	}
	for _, c := range []struct {
		pods []holder
		want string
	}{
		{[]holder{has("a", "g1", "v1"), has("b", "g2", "v2"), {"refused", &cluster.Outcome{}}}, ""},
		{[]holder{has("a", "g1", "v1"), has("b", "g1", "v2")}, "a and b both have g1"},
		{[]holder{has("a", "g1", "v1"), has("b", "g2", "v2"), has("c", "g3", "v1")}, "a and c both have v1"},
	} {
		if got := shared(c.pods); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
