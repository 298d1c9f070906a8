// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestProtected(t *testing.T) {
	t.Parallel()
	repository := fstest.MapFS{
		"a/oracle_test.go":   {Data: []byte("func TestOracle(t *testing.T) {}")},
		"a/b/deeper_test.go": {Data: []byte("func TestDeeper(t *testing.T) {}")},
		"machines/one.txt":   {},
	}
	for list, missing := range map[string]string{
		"":                                     "",
		"# a comment\n\nmachines/one.txt\n":    "",
		"a func TestOracle(\n":                 "",
		"machines/two.txt\nmachines/one.txt\n": "machines/two.txt",
		"a func TestDeeper(\n":                 "a func TestDeeper(",
		"gone func TestOracle(\n":              "gone func TestOracle(",
		"a func TestOracle(\na func TestGone(": "a func TestGone(",
	} {
		err := checkProtected(repository, list)
		switch {
		case missing == "" && err != nil:
			t.Errorf("%q: %v", list, err)
		case missing != "" && (err == nil || !strings.HasPrefix(err.Error(), missing+"\n")):
			t.Errorf("%q: %v, want %s alone", list, err, missing)
		}
	}
}
