package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// example applies the Job that README tells users to try last, waits until it has ended and reads what it printed, as a
// user would. Its image is named as in their registry.
func (t *tester) example(ctx context.Context, s setup) error {
	job := t.node.machine.job
	content, err := os.ReadFile(job)
	if err != nil {
		return err
	}
	manifest := strings.ReplaceAll(string(content), "image: tandem ", "image: "+image+" ")
	start := time.Now()
	var printed string
	var verified bool
	late, err := t.unlessLate(ctx, s.source, job, func() (good bool, err error) {
		printed, err = t.runJob(ctx, job, manifest)
		verified = strings.Contains(printed, "\nverified: 4 GPUs, 4 VFs")
		return verified, err
	})
	if err != nil {
		return err
	}
	r := row{setup: t.title(s), scenario: job, took: time.Since(start), note: join(lastLine(printed), lateNote(late))}
	if !verified {
		r.problem = "the Job is not verified"
	}
	t.add(r)
	return nil
}

// runJob returns what the Job printed, and removes it.
func (t *tester) runJob(ctx context.Context, file, manifest string) (string, error) {
	if _, err := t.node.kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		return "", err
	}
	watch := t.node.component("kubectl", "--kubeconfig="+t.path("run/admin"), "get", "--watch", "-f", file, "-o", "json")
	err := follow(ctx, watch, func(decoder *json.Decoder) (bool, error) {
		var job batchv1.Job
		err := decoder.Decode(&job)
		return job.Status.Succeeded+job.Status.Failed > 0, err
	})
	if err != nil {
		return "", fmt.Errorf("wait for the Job of %s: %w", file, err)
	}
	printed, err := t.node.kubectl(ctx, "", "logs", "--selector=batch.kubernetes.io/job-name", "--tail=-1")
	_, gone := t.node.kubectl(ctx, "", "delete", "-f", file, "--cascade=foreground")
	return printed, errors.Join(err, gone)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
