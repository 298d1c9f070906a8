// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"strings"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/spec"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	format "tags.cncf.io/container-device-interface/specs-go"
)

// writeSpecs has NVIDIA's own library say what a container needs for GPUs, and for what else is enabled.
func (m *management) writeSpecs(s specs) (extras []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uuids []string // none means all
	if !s.complete {
		uuids = s.uuids
	}
	namer, err := nvcdi.NewDeviceNamer(s.config.DeviceID)
	if err != nil {
		return nil, fmt.Errorf("write CDI specifications: %w", err)
	}
	if _, err := m.writeSpec(s, "nvml", cdiGPU, uuids, nvcdi.WithDeviceNamers(namer)); err != nil {
		return nil, err
	}
	if len(s.channels) > 0 {
		if err := s.writeChannels(); err != nil {
			return nil, err
		}
	}
	for _, mode := range s.modes() {
		written, err := m.writeSpec(s, mode, mode, nil)
		if err != nil {
			return nil, err
		}
		if written {
			extras = append(extras, qualified(mode, "all"))
		}
	}
	return extras, nil
}

// writeSpec writes one file. It reports false where there is nothing to describe.
func (m *management) writeSpec(
	s specs, mode, class string, ids []string, options ...nvcdi.Option,
) (bool, error) {
	lib, err := nvcdi.New(append([]nvcdi.Option{
		nvcdi.WithDeviceLib(m.devices),
		nvcdi.WithNvmlLib(m.api),
		nvcdi.WithDriverRoot(s.config.ContainerDriverRoot),
		nvcdi.WithDevRoot(s.devRoot()),
		nvcdi.WithNVIDIACDIHookPath(s.config.CDIHook),
		nvcdi.WithFeatureFlags(s.config.CDIFeatures...),
		nvcdi.WithDisabledHooks(s.config.CDIDisabledHooks...),
		nvcdi.WithLogger(quiet{s.log}),
		nvcdi.WithVendor(cdiVendor),
		nvcdi.WithClass(class),
		nvcdi.WithMode(mode),
	}, options...)...)
	if err != nil {
		return false, fmt.Errorf("describe %s for CDI: %w", class, err)
	}
	content, err := lib.GetSpec(ids...)
	if err != nil {
		return false, fmt.Errorf("describe %s for CDI: %w", class, err)
	}
	return s.save(content)
}

// writeChannels describes the IMEX channels.
func (s specs) writeChannels() error {
	var devices []format.Device
	for _, c := range s.channels {
		node := &format.DeviceNode{Path: c.path(), HostPath: c.hostPath}
		devices = append(devices, format.Device{
			Name: c.id, ContainerEdits: format.ContainerEdits{DeviceNodes: []*format.DeviceNode{node}},
		})
	}
	content, err := spec.New(spec.WithDeviceSpecs(devices), spec.WithVendor(cdiVendor),
		spec.WithClass(cdiChannel))
	if err != nil {
		return fmt.Errorf("describe IMEX channels for CDI: %w", err)
	}
	_, err = s.save(content)
	return err
}

// save puts the host's paths in the place of this container's and writes the file.
func (s specs) save(content spec.Interface) (bool, error) {
	if err := s.onHost().Transform(content.Raw()); err != nil {
		return false, fmt.Errorf("write CDI specification: %w", err)
	}
	name, err := cdi.GenerateNameForSpec(content.Raw())
	if err != nil {
		return false, fmt.Errorf("write CDI specification: %w", err)
	}
	file := path.Join(s.dir, name+".json")
	now := written{asked: askedFor(content.Raw())}
	if before := s.before[file]; before.asked == now.asked && before.intact(file) {
		s.files[file] = before
		return true, nil
	}
	if err := content.Save(file); err != nil {
		if strings.Contains(err.Error(), "empty device edits") { // nothing of it is installed
			if s.first {
				s.log.Warn("no CDI specification", "file", file, "cause", err)
			}
			return false, nil
		}
		return false, fmt.Errorf("write CDI specification %s: %w", file, err)
	}
	now.has, _ = sumOf(file)
	s.files[file] = now
	return true, nil
}

// askedFor is the sum of a specification before it is saved, which adds to it.
func askedFor(content *format.Spec) sum {
	text, _ := json.Marshal(content) // what has no JSON cannot be saved either
	return sha256.Sum256(text)
}

// onHost turns paths as this process sees them into those of the host.
func (s specs) onHost() transform.Transformer {
	replace := func(from, to string) transform.Transformer {
		return root.New(root.WithRoot(from), root.WithTargetRoot(to), root.WithRelativeTo("host"))
	}
	files := replace(s.config.ContainerDriverRoot, s.config.DriverRoot)
	if s.devRoot() == s.config.ContainerDriverRoot {
		return files
	}
	return transform.Merge(files,
		replace(path.Join(s.devRoot(), "dev"), path.Join(strings.TrimSuffix(s.config.HostDevRoot, "/dev"), "dev")))
}

// quiet is the logger of NVIDIA's library: what it says of every file is for debugging.
type quiet struct{ log *slog.Logger }

func (q quiet) Debugf(format string, args ...any)   { q.log.Debug(fmt.Sprintf(format, args...)) }
func (q quiet) Infof(format string, args ...any)    { q.log.Debug(fmt.Sprintf(format, args...)) }
func (q quiet) Warningf(format string, args ...any) { q.log.Debug(fmt.Sprintf(format, args...)) }
func (q quiet) Errorf(format string, args ...any)   { q.log.Warn(fmt.Sprintf(format, args...)) }
func (q quiet) Tracef(string, ...any)               {}
