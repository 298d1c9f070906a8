// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/test/vm/host"
	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// userFolder is the user's copy of the repository.
const userFolder = "run/user"

// asUser runs a shell script in the user's folder, with kubectl, helm and deployments.
func (t *tester) asUser(ctx context.Context, script string) (string, error) {
	cmd := host.InFolder(t.Path(userFolder), "sh", "-c", script)
	cmd.Env = t.userEnvironment()
	output, err := host.Run(ctx, cmd)
	return string(output), err
}

// userEnvironment returns the environment of the user's commands.
func (t *tester) userEnvironment() []string {
	folders := []string{t.Path("kubernetes"), t.Path("user"), t.Path(userFolder), os.Getenv("PATH")}
	return []string{
		"PATH=" + strings.Join(folders, ":"), "KUBECONFIG=" + t.Path("run/admin"),
		"HOME=" + t.Path(userFolder), "TERM=" + os.Getenv("TERM"),
	}
}

// layOutUser copies the user's files, with the image's name inserted in documents and manifests.
func (t *tester) layOutUser() error {
	name, tag, _ := strings.Cut(build.Image, ":")
	own := strings.NewReplacer(
		"newName: ghcr.io/tandem-k8s/tandem\n", "newName: "+name+"\n",
		"newTag: "+version.Of(nil)+"\n", "newTag: "+tag+"\n",
		"image: ghcr.io/tandem-k8s/tandem:"+version.Of(nil)+" ", "image: "+build.Image+" ",
	)
	return errors.Join(
		copyTree("deployments", t.Path(userFolder, "deployments"), own),
		copyTree("test/vm/deploy/stand-in", t.Path(userFolder, "stand-in"), strings.NewReplacer()),
		copyTree(t.Path("user/crds"), t.Path(userFolder, "crds"), strings.NewReplacer()),
	)
}

func copyTree(from, to string, edit *strings.Replacer) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, []byte(edit.Replace(string(content))), info.Mode())
	})
}

// onNodeScript is the user's command for the node: the agent runs the arguments as a shell script with the
// containers' /sys.
const onNodeScript = `#!/bin/sh
# Runs a shell command on the node: on-node tandem status
answer=$(printf '%s' "unshare -m sh <<'END'
mount --rbind /run/sysroot /sys
$*
END
code=\$?; echo; echo \$code" | curl -sS --data-binary @- ` + machine.Agent + `/run)
printf '%s\n' "$answer" | sed '$d'
exit "$(printf '%s\n' "$answer" | tail -n 1)"
`

// shell runs a shell in the user's folder and returns at its end. Its exit status says nothing about Tandem.
func (t *tester) shell(ctx context.Context) error {
	if err := errors.Join(
		t.layOutUser(),
		copyTree("docs", t.Path(userFolder, "docs"), strings.NewReplacer()),
		copyTree("README.md", t.Path(userFolder, "README.md"), strings.NewReplacer()),
		os.WriteFile(t.Path(userFolder, "on-node"), []byte(onNodeScript), 0o755),
	); err != nil {
		return err
	}
	t.Say("the node is called %s, its containers find the image as %s; on-node COMMAND runs a command there;"+
		" the end of the shell is the end of the machine", cluster.NodeName, build.Image)
	cmd := exec.CommandContext(ctx, "sh", "-i")
	cmd.Dir, cmd.Env = t.Path(userFolder), t.userEnvironment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

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
