// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	dockershell "github.com/moby/buildkit/frontend/dockerfile/shell"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/tandem-k8s/tandem/test/docs"
)

// top is the top of the repository, which is the context of "docker build".
const top = "../../.."

// TestDockerfile: the image of the Dockerfile and that of "make image" have the same files and settings. Both
// are made of one copy of the source, so that the programs are built once; without .git, because the
// Dockerfile does not know the commit, which the other image has among its labels.
func TestDockerfile(t *testing.T) {
	stages := stagesOf(t)
	if len(stages) != 2 || stages[1].BaseName != "scratch" {
		t.Fatalf("%d stages in the Dockerfile, the last one from %s; want two and scratch",
			len(stages), stages[len(stages)-1].BaseName)
	}
	ci, err := os.ReadFile(top + "/.github/workflows/ci.yml")
	ready(t, err)
	if base := strings.TrimPrefix(stages[0].BaseName, "docker.io/library/"); !strings.Contains(string(ci),
		"\n    container: "+base+"\n") {
		t.Errorf("the Dockerfile builds in %s, CI in another image", base)
	}
	builder := newStage(t, stages[0], nil)
	own := newStage(t, stages[1], map[string]stage{stages[0].Name: builder})
	builder.run(t, "make image IMAGE=registry.example/tandem TAG=v1 ALSO=")

	image, err := tarball.ImageFromPath(filepath.Join(builder.folder(), "bin/image.tar"), nil)
	ready(t, err)
	config, err := image.ConfigFile()
	ready(t, err)
	if !reflect.DeepEqual(own.config, config.Config) {
		t.Errorf("the settings are\n%+v in the Dockerfile, and\n%+v with make image", own.config, config.Config)
	}
	a, b := own.entries(t), entriesOf(t, image)
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if a[name] != b[name] {
			t.Errorf("/%s is %q in the Dockerfile's image, and %q in that of make image", name, a[name], b[name])
		}
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
		t.Fatalf("the Dockerfile has arguments before its stages: %v; this test knows none", arguments)
	}
	return stages
}

// stage is one stage of the Dockerfile, made as an engine makes it, as far as a machine without one can: its
// root is a folder, and what its base image has is what this machine has.
type stage struct {
	root   string
	config v1.Config
}

// newStage does what the instructions of a stage say; others are the stages before.
func newStage(t *testing.T, parsed instructions.Stage, others map[string]stage) stage {
	t.Helper()
	s, words := stage{root: t.TempDir()}, dockershell.NewLex('\\')
	expand := func(word string) (string, error) {
		expanded, _, err := words.ProcessWord(word, dockershell.EnvsFromSlice(s.config.Env))
		return expanded, err
	}
	for _, command := range parsed.Commands {
		if c, ok := command.(instructions.SupportsSingleWordExpansion); ok {
			ready(t, c.Expand(expand))
		}
		switch c := command.(type) {
		case *instructions.EnvCommand:
			for _, variable := range c.Env {
				s.config.Env = append(s.config.Env, variable.String())
			}
		case *instructions.LabelCommand:
			s.config.Labels = map[string]string{}
			for _, label := range c.Labels {
				s.config.Labels[label.Key] = label.Value
			}
		case *instructions.WorkdirCommand:
			s.config.WorkingDir = s.at(c.Path)
			ready(t, os.MkdirAll(s.folder(), 0o755))
		case *instructions.EntrypointCommand:
			s.config.Entrypoint = c.CmdLine
			if c.PrependShell {
				t.Errorf("the image has no shell for its entrypoint: %s", c)
			}
		case *instructions.CopyCommand:
			s.copy(t, c, others)
		case *instructions.RunCommand:
			if len(c.FlagsUsed) > 0 || len(c.Files) > 0 {
				t.Fatalf("this test does not know what an engine does with %s", c)
			}
			s.run(t, strings.Join(c.CmdLine, " "))
		default:
			t.Fatalf("this test does not know what an engine does with %s", c)
		}
	}
	return s
}

// at is a path in the stage, which may begin in its working folder.
func (s stage) at(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join("/", s.config.WorkingDir, name)
}

// folder is where the stage's working folder is here.
func (s stage) folder() string { return filepath.Join(s.root, s.config.WorkingDir) }

// copy copies what is in a folder of a stage before, or all of the context.
func (s stage) copy(t *testing.T, c *instructions.CopyCommand, others map[string]stage) {
	t.Helper()
	plain := instructions.CopyCommand{SourcesAndDest: c.SourcesAndDest, From: c.From}
	if known := (instructions.CopyCommand{
		SourcesAndDest: c.SourcesAndDest, From: c.From, Chown: c.Chown, Chmod: c.Chmod, Link: c.Link,
		ExcludePatterns: c.ExcludePatterns, Parents: c.Parents,
	}); !reflect.DeepEqual(plain, known) || len(c.SourcePaths) != 1 || len(c.SourceContents) > 0 {
		t.Fatalf("this test does not know what an engine does with %s", c)
	}
	to := filepath.Join(s.root, s.at(c.DestPath))
	ready(t, os.MkdirAll(to, 0o755))
	if c.From == "" {
		if c.SourcePaths[0] != "." {
			t.Fatalf("this test does not know what an engine does with %s", c)
		}
		copyContext(t, to)
		return
	}
	other, ok := others[c.From]
	if !ok {
		t.Fatalf("no stage of that name before: %s", c)
	}
	execute(t, "cp", "-a", filepath.Join(other.root, other.at(c.SourcePaths[0]))+"/.", to)
}

// installs is an instruction that installs Debian packages.
var installs = regexp.MustCompile(`^apt-get update && apt-get install -y --no-install-recommends (.*)$`)

// run runs a command of a stage on this machine. It runs make, which stays in the working folder, and nothing
// else; what is to be installed has to be what the documents say that the image takes.
func (s stage) run(t *testing.T, line string) {
	t.Helper()
	if packages := installs.FindStringSubmatch(line); packages != nil {
		if packages[1] != "busybox-static" {
			t.Errorf("the Dockerfile installs %s; the documents say that make image takes busybox-static", packages[1])
		}
		return
	}
	if !strings.HasPrefix(line, "make ") || strings.ContainsAny(line, "&|;$`") {
		t.Fatalf("this test runs make alone, not %s", line)
	}
	command := exec.Command("sh", "-c", line)
	command.Dir = s.folder()
	command.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS=")
	}), s.config.Env...)
	// A parent folder of a temporary one may belong to git.
	command.Env = append(command.Env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(s.root))
	if _, err := os.Stat(busyboxPath()); err != nil { // nothing is started in the images
		command.Env = append(command.Env, "BUSYBOX="+standIn(filepath.Join(s.folder(), "bin")))
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// entry is what an image has under a path: "" for nothing, else a link's target, a folder's mode, or a file's
// mode and sum.
type entry string

func newEntry(t *testing.T, mode fs.FileMode, link string, content io.Reader) entry {
	t.Helper()
	switch mode.Type() {
	case fs.ModeDir:
		return entry(mode.String())
	case fs.ModeSymlink:
		return entry("a link to " + link)
	case 0:
		sum := sha256.New()
		_, err := io.Copy(sum, content)
		ready(t, err)
		return entry(fmt.Sprintf("%s, SHA-256 %x", mode, sum.Sum(nil)))
	}
	t.Errorf("an image has files, folders and links alone, not %s", mode)
	return ""
}

// entries are those of the stage's root. An engine gives to root what it copies.
func (s stage) entries(t *testing.T) map[string]entry {
	t.Helper()
	list := map[string]entry{}
	ready(t, filepath.WalkDir(s.root, func(file string, of fs.DirEntry, err error) error {
		ready(t, err)
		info, err := of.Info()
		ready(t, err)
		name, _ := filepath.Rel(s.root, file) // both are absolute
		link, _ := os.Readlink(file)          // "" of all but links
		var content []byte
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(file)
			ready(t, err)
		}
		list[name] = newEntry(t, info.Mode(), link, bytes.NewReader(content))
		return nil
	}))
	delete(list, ".")
	return list
}

// entriesOf are those of an image, its layers one over the other.
func entriesOf(t *testing.T, image v1.Image) map[string]entry {
	t.Helper()
	layers, err := image.Layers()
	ready(t, err)
	list := map[string]entry{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		ready(t, err)
		defer content.Close()
		for r := tar.NewReader(content); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			ready(t, err)
			if header.Uid != 0 || header.Gid != 0 {
				t.Errorf("%s belongs to %d:%d, not to root", header.Name, header.Uid, header.Gid)
			}
			list[path.Clean(header.Name)] = newEntry(t, header.FileInfo().Mode(), header.Linkname, r)
		}
	}
	return list
}

// ignored are the patterns of .dockerignore.
func ignored(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	content, err := os.Open(top + "/.dockerignore")
	ready(t, err)
	defer content.Close()
	patterns, err := ignorefile.ReadAll(content)
	ready(t, err)
	matcher, err := patternmatcher.New(patterns)
	ready(t, err)
	return matcher
}

// copyContext copies what an engine is given of the repository, without .git.
func copyContext(t *testing.T, to string) {
	t.Helper()
	left := ignored(t)
	ready(t, filepath.WalkDir(top, func(file string, entry fs.DirEntry, err error) error {
		ready(t, err)
		name, err := filepath.Rel(top, file)
		ready(t, err)
		ignore, err := left.MatchesOrParentMatches(name)
		ready(t, err)
		target := filepath.Join(to, name)
		switch {
		case name == ".":
		case (name == ".git" || ignore) && entry.IsDir():
			return fs.SkipDir
		case name == ".git" || ignore:
		case entry.IsDir():
			return os.Mkdir(target, 0o755)
		case entry.Type() == fs.ModeSymlink:
			link, err := os.Readlink(file)
			ready(t, err)
			return os.Symlink(link, target)
		default:
			info, err := entry.Info()
			ready(t, err)
			content, err := os.ReadFile(file)
			ready(t, err)
			return os.WriteFile(target, content, info.Mode().Perm())
		}
		return nil
	}))
}

// TestDockerignore: an engine is given all that git knows, and .git, or the version that is stamped into the
// programs would be that of a modified source; and nothing of what git ignores.
func TestDockerignore(t *testing.T) {
	out, err := exec.Command("git", "-C", top, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git knows nothing of this source: %v", err)
	}
	left := ignored(t)
	known := append(strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), ".git/HEAD", ".git/index")
	for _, name := range known {
		if ignore, err := left.MatchesOrParentMatches(name); ignore || err != nil {
			t.Errorf("%s is left out, %v", name, err)
		}
	}
	patterns, err := os.ReadFile(top + "/.gitignore")
	ready(t, err)
	for line := range strings.Lines(string(patterns)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		names := []string{strings.ReplaceAll(strings.Trim(line, "/"), "*", "any")}
		if !strings.HasPrefix(line, "/") {
			names = append(names, "cmd/tandem/"+names[0])
		}
		for _, name := range names {
			if ignore, err := left.MatchesOrParentMatches(name); !ignore || err != nil {
				t.Errorf(".gitignore has %s, but %s is given to the engine, %v", line, name, err)
			}
		}
	}
}

// TestDockerCommands: the commands of the documents build the image of the Dockerfile, in the context that
// this test gives it.
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
