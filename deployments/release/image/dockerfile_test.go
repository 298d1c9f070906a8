// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/tandem-k8s/tandem/test/docs"
)

// top is the top of the repository, which is the context of "docker build".
const top = "../../.."

// TestDockerfile: the image of the Dockerfile has the files of "make image-root", made in CI's image, and the
// settings of the image of "make image". The files are the same by TestRoot.
func TestDockerfile(t *testing.T) {
	stages := stagesOf(t)
	if len(stages) != 2 || stages[0].Name != "build" || stages[1].BaseName != "scratch" {
		t.Fatalf("the stages are %v, want build, and another from scratch", stages)
	}
	ci, err := os.ReadFile(top + "/.github/workflows/ci.yml")
	ready(t, err)
	if base := strings.TrimPrefix(stages[0].BaseName, "docker.io/library/"); !strings.Contains(string(ci),
		"\n    container: "+base+"\n") {
		t.Errorf("the Dockerfile builds in %s, CI in another image", base)
	}
	var build []string
	for _, command := range stages[0].Commands {
		build = append(build, fmt.Sprint(command))
	}
	want := []string{
		"RUN apt-get update && apt-get install -y --no-install-recommends busybox-static", // as in the documents
		"WORKDIR /tandem", "COPY . .", "RUN make image-root",
	}
	if diff := cmp.Diff(want, build); diff != "" {
		t.Errorf("the first stage (-want +Dockerfile):\n%s", diff)
	}
	bin := programs(t)
	file, _ := packImage(t, bin, standIn(bin))
	image, err := tarball.ImageFromPath(file, nil)
	ready(t, err)
	config, err := image.ConfigFile()
	ready(t, err)
	if diff := cmp.Diff(config.Config, settings(t, stages[1])); diff != "" {
		t.Errorf("settings (-make image +Dockerfile):\n%s", diff)
	}
}

// stagesOf reads the Dockerfile with the code by which Docker does.
func stagesOf(t *testing.T) []instructions.Stage {
	t.Helper()
	content, err := os.Open(top + "/Dockerfile")
	ready(t, err)
	defer content.Close()
	parsed, err := parser.Parse(content)
	ready(t, err)
	for _, warning := range parsed.Warnings {
		t.Errorf("Docker warns of the Dockerfile: %s", warning.Short)
	}
	stages, arguments, err := instructions.Parse(parsed.AST, nil)
	ready(t, err)
	if len(arguments) > 0 {
		t.Fatalf("the Dockerfile has arguments before its stages: %v", arguments)
	}
	return stages
}

// settings returns the settings of the last stage, which copies the root of the first one and nothing else.
func settings(t *testing.T, stage instructions.Stage) (config v1.Config) {
	t.Helper()
	copies := 0
	for _, command := range stage.Commands {
		switch c := command.(type) {
		case *instructions.CopyCommand:
			if copies++; c.String() != "COPY --from=build /tandem/bin/root/ /" {
				t.Errorf("the image has other files than those of make image-root: %s", c)
			}
		case *instructions.EnvCommand:
			for _, variable := range c.Env {
				config.Env = append(config.Env, variable.String())
			}
		case *instructions.LabelCommand:
			config.Labels = map[string]string{}
			for _, label := range c.Labels {
				config.Labels[label.Key] = strings.Trim(label.Value, `"`)
			}
		case *instructions.WorkdirCommand:
			config.WorkingDir = c.Path
		case *instructions.EntrypointCommand:
			config.Entrypoint = c.CmdLine
			if c.PrependShell {
				t.Errorf("the image has no shell for its entrypoint: %s", c)
			}
		default:
			t.Errorf("this test does not know %s", c)
		}
	}
	if copies != 1 {
		t.Errorf("%d instructions COPY, want 1", copies)
	}
	return config
}

// TestRoot: "make image-root" writes the files that "make image" packs, from the same programs and with the
// same permissions, and all of them are root's.
func TestRoot(t *testing.T) {
	bin, err := filepath.Abs(top + "/bin")
	ready(t, err)
	packs, writes := recipe(t, "image"), recipe(t, "image-root")
	if !strings.Contains(writes, " --root "+bin+"/root\n") {
		t.Errorf("make image-root does not write bin/root, which the Dockerfile copies:\n%s", writes)
	}
	sources := regexp.MustCompile(`.*go build .*|--(?:bin|busybox) \S+`)
	if diff := cmp.Diff(sources.FindAllString(packs, -1), sources.FindAllString(writes, -1)); diff != "" {
		t.Errorf("programs (-make image +make image-root):\n%s", diff)
	}
	packed, written := t.TempDir(), filepath.Join(t.TempDir(), "root")
	unpackImage(t, programs(t), standIn(programs(t)), packed)
	ready(t, writeRoot(written, programs(t), standIn(programs(t))))
	if diff := cmp.Diff(entries(t, packed), entries(t, written)); diff != "" {
		t.Errorf("files (-make image +make image-root):\n%s", diff)
	}
}

// recipe returns the commands of a target of the Makefile.
func recipe(t *testing.T, target string) string {
	t.Helper()
	command := exec.Command("make", "-n", target, "ALSO=")
	command.Dir = top
	out, err := command.Output()
	ready(t, err)
	return string(out)
}

// entries are the files, folders and links of a folder: owner, permissions, and the target or the checksum.
func entries(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	ready(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		ready(t, err)
		info, err := entry.Info()
		ready(t, err)
		owner := info.Sys().(*syscall.Stat_t)
		about := fmt.Sprint(info.Mode(), " of ", owner.Uid, ":", owner.Gid)
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			link, err := os.Readlink(file)
			ready(t, err)
			about += " to " + link
		case 0:
			content, err := os.ReadFile(file)
			ready(t, err)
			about += fmt.Sprintf(" with %x", sha256.Sum256(content))
		}
		all[strings.TrimPrefix(file, root)] = about
		return nil
	}))
	delete(all, "")
	return all
}

// TestDockerignore: an engine is given all that git knows, and .git, or the version that is stamped into the
// programs would be that of a modified source; and nothing of what git ignores.
func TestDockerignore(t *testing.T) {
	out, err := exec.Command("git", "-C", top, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git knows nothing of this source: %v", err)
	}
	content, err := os.Open(top + "/.dockerignore")
	ready(t, err)
	defer content.Close()
	patterns, err := ignorefile.ReadAll(content)
	ready(t, err)
	left, err := patternmatcher.New(patterns)
	ready(t, err)
	names := map[string]bool{".git/HEAD": false, ".git/index": false} // ignored
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		names[name] = false
	}
	ignored, err := os.ReadFile(top + "/.gitignore")
	ready(t, err)
	for line := range strings.Lines(string(ignored)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.ReplaceAll(strings.Trim(line, "/"), "*", "any")
		names[name] = true
		if !strings.HasPrefix(line, "/") {
			names["cmd/tandem/"+name] = true
		}
	}
	for name, want := range names {
		if ignore, err := left.MatchesOrParentMatches(name); ignore != want || err != nil {
			t.Errorf("%s is left out: %t, by git: %t, %v", name, ignore, want, err)
		}
	}
}

// TestDockerCommands: the commands of the documents build the image of the Dockerfile.
func TestDockerCommands(t *testing.T) {
	commands, err := docs.Of(top, "docker")
	ready(t, err)
	for _, c := range commands {
		if len(c.Args) != 4 || c.Args[0] != "build" || c.Args[1] != "-t" || c.Args[3] != "." {
			t.Errorf("%s: this test knows docker build -t NAME . alone", c)
		} else if _, err := name.NewTag(c.Args[2]); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}
