package main

import "testing"

func TestStatusWithoutPlugins(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run("status", "--run-dir", t.TempDir())
	if code != exitError || stdout != "" || stderr == "" {
		t.Errorf("exit code %d, standard output %q, standard error %q", code, stdout, stderr)
	}
}
