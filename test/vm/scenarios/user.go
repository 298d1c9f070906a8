// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/host"
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
