// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config parses a configuration that has to be right.
func config(t *testing.T, text string) *Config {
	t.Helper()
	c, err := parseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ids lists the device IDs of a pool.
func ids(p Pool) []string {
	var ids []string
	for _, d := range p.Devices {
		ids = append(ids, d.ID)
	}
	return ids
}
