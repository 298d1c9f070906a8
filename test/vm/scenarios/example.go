// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// example applies the last Job of docs/install.md, waits for its end and reads its output, like a user.
func (t *tester) example(ctx context.Context, s setup, job string) error {
	content, err := os.ReadFile(job)
	if err != nil {
		return err
	}
	start := time.Now()
	var printed string
	var verified bool
	late, err := t.unlessLate(ctx, s.source, job, func() (good bool, err error) {
		printed, err = t.runJob(ctx, job, string(content))
		verified = strings.Contains(printed, "\nverified: 4 GPUs, 4 VFs")
		return verified, err
	})
	if err != nil {
		return err
	}
	note := join(lastLine(printed), lateNote(late))
	r := Row{Setup: t.title(s), Scenario: job, took: time.Since(start), note: note}
	if !verified {
		r.Problem = "the Job is not verified"
	}
	t.add(r)
	return nil
}

// runJob returns the Job's output, and removes the Job.
func (t *tester) runJob(ctx context.Context, file, manifest string) (string, error) {
	if _, err := t.node.Kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		return "", err
	}
	err := t.node.Follow(ctx, func(output io.Reader) error {
		for decoder := json.NewDecoder(output); ; {
			var job batchv1.Job
			if err := decoder.Decode(&job); err != nil || job.Status.Succeeded+job.Status.Failed > 0 {
				return err
			}
		}
	}, "get", "--watch", "-f", file, "-o", "json")
	if err != nil {
		return "", fmt.Errorf("wait for the Job of %s: %w", file, err)
	}
	printed, err := t.node.Kubectl(ctx, "", "logs", "--selector=batch.kubernetes.io/job-name", "--tail=-1")
	_, gone := t.node.Kubectl(ctx, "", "delete", "-f", file, "--cascade=foreground")
	return printed, errors.Join(err, gone)
}
