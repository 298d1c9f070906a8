// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"log/slog"
	"slices"
	"testing"
)

// A server that ends writes the last changes: the next server continues from them.
func TestLastWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := open(t, dir, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.run(ctx, func() example { return train }); err != nil {
		t.Fatal(err)
	}
	got, ok := open(t, dir, slog.New(slog.DiscardHandler)).load()
	if !ok || !slices.Equal(got.Pods, train.Pods) {
		t.Errorf("the next server has %v, %t", got, ok)
	}
}
