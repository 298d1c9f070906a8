// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestRole(t *testing.T) {
	dir := shortDir(t) + "/run"
	first, _, stopFirst := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	second, _, _ := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	if first.Role() != Serves || second.Role() != Joined || len(first.Resources()) != 2 ||
		second.Resources() != nil {
		t.Errorf("%s with %v and %s with %v", first.Role(), first.Resources(), second.Role(), second.Resources())
	}
	for _, n := range []*Node{first, second} {
		if err := n.Alive(t.Context()); err != nil {
			t.Error(err)
		}
	}
	letGo := hang(first)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := first.Alive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a coordinator that hangs: %v", err)
	}
	letGo()
	long := time.Now().Add(-stuck)
	second.election.beat.Store(&long)
	if err := second.Alive(t.Context()); err == nil {
		t.Error("an election that hangs is alive")
	}
	stopFirst()
	await(t, dir, connected(vfs))
	if second.Role() != Serves || first.Role() != Apart {
		t.Errorf("%s and %s after the first one ended", first.Role(), second.Role())
	}
}
