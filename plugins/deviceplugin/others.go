package deviceplugin

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// sockets are sockets by path, with the times when they were made: one that is made anew is another.
type sockets map[string]time.Time

// others finds the sockets of other plugins in both folders, whatever resource they are for: a socket does
// not say. This program's own for other resources are left out.
func (g *guard) others() sockets {
	found := sockets{}
	for _, dir := range []string{"device-plugins", registryFolder} {
		entries, _ := os.ReadDir(filepath.Join(g.kubeletDir, dir)) // the second one is not everywhere
		for _, entry := range entries {
			name, path := entry.Name(), filepath.Join(g.kubeletDir, dir, entry.Name())
			own := path == g.socket || ownForm.MatchString(name) && !namedAfter(path, g.resource.Name())
			if entry.Type() != fs.ModeSocket || name == kubeletSocket || own {
				continue
			}
			if info, err := entry.Info(); err == nil {
				found[path] = info.ModTime()
			}
		}
	}
	return found
}

// named are those whose name is one for a resource, and that were made after a time: the kubelet goes by the
// plugin that registered last.
func (s sockets) named(resource string, after time.Time) sockets {
	named := maps.Clone(s)
	maps.DeleteFunc(named, func(path string, made time.Time) bool {
		return !made.After(after) || !namedAfter(path, resource)
	})
	return named
}

// living are those that somebody listens on.
func (s sockets) living() sockets {
	alive := maps.Clone(s)
	maps.DeleteFunc(alive, func(path string, made time.Time) bool {
		info, err := os.Lstat(path)
		return err != nil || !info.ModTime().Equal(made) || dead(path)
	})
	return alive
}

// ownForm is how this program's sockets are called.
var ownForm = regexp.MustCompile("^(.*)" + suffix + "$")

// namedAfter reports whether a socket, by its path, has a name that plugins give to those of a resource: of
// vendor.com/kind they are vendor.com_kind and vendor-kind, and another instance of this program has one like
// ours.
func namedAfter(path, resource string) bool {
	dir, socket := filepath.Split(path)
	if own := ownForm.FindStringSubmatch(socket); own != nil {
		return own[1] == socketPrefix(filepath.Clean(dir), resource)
	}
	vendor, kind, _ := strings.Cut(resource, "/")
	company, _, _ := strings.Cut(vendor, ".")
	name := strings.TrimSuffix(socket, ".sock")
	return name == vendor+"_"+kind || name == company+"-"+kind
}
