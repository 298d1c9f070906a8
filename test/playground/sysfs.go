// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// functionFiles are the laid-out files of a GPU or a NIC by which the daemons judge the function
// (docs/health.md).
type functionFiles struct{ dir string }

func (p *Playground) sysfsOf(f *topology.Device) functionFiles {
	devices := filepath.FromSlash(topology.PCIDevices)
	return functionFiles{filepath.Join(p.SysfsRoot(), devices, f.Address.String())}
}

// Names of files of a function.
const (
	widthFile    = "current_link_width"
	maxWidthFile = "max_link_width"
	fatalFile    = "aer_dev_fatal"
)

// lanes is the width of a PCIe link that is not recorded.
const lanes = 16

// complete adds the files that recordings lack: the width of the PCIe link, the counter of fatal errors, and
// the flags of netdevs, which are up if their recorded state is.
func (s functionFiles) complete() error {
	width := cmp.Or(s.width(widthFile), s.width(maxWidthFile), lanes)
	missing := map[string]string{
		widthFile: fmt.Sprintln(width), maxWidthFile: fmt.Sprintln(width), fatalFile: fatalErrors(0),
	}
	for _, netdev := range s.glob("net/*") {
		if read(filepath.Join(s.dir, netdev, "operstate")) == "up" {
			missing[filepath.Join(netdev, "flags")] = "0x1003\n" // IFF_UP, IFF_BROADCAST, IFF_MULTICAST
		}
	}
	for name, text := range missing {
		file := filepath.Join(s.dir, name)
		if _, err := os.Lstat(file); err == nil {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("complete the files of a function: %w", err)
		}
	}
	return nil
}

func (s functionFiles) width(file string) int {
	return topology.ParseLinkWidth(read(filepath.Join(s.dir, file)))
}

// glob returns the matching files of the function, by their names below its folder.
func (s functionFiles) glob(pattern string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(s.dir, pattern)) // the pattern is right
	for _, file := range files {
		if name, err := filepath.Rel(s.dir, file); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// degrade reduces the PCIe link to one lane.
func (s functionFiles) degrade() (repair func() error, err error) {
	if width := s.width(widthFile); width < 2 {
		return nil, fmt.Errorf("the lanes of its PCIe link are %d", width)
	}
	return s.replace(map[string]string{widthFile: "1\n"})
}

// fail ends the link of a NIC's ports. A GPU, and a NIC whose ports have no state, reports fatal PCIe errors.
func (s functionFiles) fail() (repair func() error, err error) {
	down := map[string]string{}
	for _, name := range s.glob("net/*/flags") {
		down[filepath.Join(filepath.Dir(name), "carrier")] = "0\n"
		down[filepath.Join(filepath.Dir(name), "operstate")] = "down\n"
	}
	for _, name := range s.glob("infiniband/*/ports/*/link_layer") {
		if len(down) > 0 || read(filepath.Join(s.dir, name)) == "InfiniBand" {
			down[filepath.Join(filepath.Dir(name), "state")] = "1: DOWN\n"
			down[filepath.Join(filepath.Dir(name), "phys_state")] = "3: Disabled\n"
		}
	}
	if len(down) == 0 {
		return s.reportErrors()
	}
	return s.replace(down)
}

// replace replaces the content of existing files. The function that it returns restores the content.
func (s functionFiles) replace(texts map[string]string) (restore func() error, err error) {
	before := map[string]string{}
	restore = func() error {
		var errs []error
		for file, text := range before {
			errs = append(errs, overwrite(file, text))
		}
		return errors.Join(errs...)
	}
	for name, text := range texts {
		file := filepath.Join(s.dir, name)
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			before[file], err = string(content), overwrite(file, text)
		}
		if err != nil {
			return nil, errors.Join(err, restore())
		}
	}
	return restore, nil
}

// errorPause is the pause between two errors of a failing function, shorter than the shortest window of the
// daemons' rules, so that the function stays failed.
const errorPause = 5 * time.Second

// reportErrors increases the counter of fatal errors until the function that it returns is called.
func (s functionFiles) reportErrors() (stop func() error, err error) {
	file := filepath.Join(s.dir, fatalFile)
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(content))
	count, err := strconv.Atoi(text[strings.LastIndexByte(text, ' ')+1:])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if err := overwrite(file, fatalErrors(count+1)); err != nil {
		return nil, err
	}
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		pause := time.NewTicker(errorPause)
		defer pause.Stop()
		for n := count + 2; ; n++ {
			select {
			case <-done:
				ended <- nil
				return
			case <-pause.C:
			}
			if err := overwrite(file, fatalErrors(n)); err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() error { close(done); return <-ended }, nil
}

// fatalErrors returns the content of the counter's file
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer).
func fatalErrors(count int) string { return fmt.Sprintf("TOTAL_ERR_FATAL %d\n", count) }

// read returns the text of a file, "" without the file.
func read(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// overwrite replaces the content of a file that a daemon may be reading: at no time is the file empty.
func overwrite(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Close())
}
