// SPDX-License-Identifier: Apache-2.0

//go:build race

package tenant_test

// raced reports whether the tests have the race detector; the daemons that they start have not.
const raced = true
