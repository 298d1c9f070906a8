// SPDX-License-Identifier: Apache-2.0

// Command pack packs the Helm chart like "helm package", with the version of a program: equal inputs give
// equal bytes. It is part of "make release".
package main

import (
	"archive/tar"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func main() {
	chart := pflag.String("chart", "../../deployments/helm/tandem", "folder of the chart")
	program := pflag.String("program", "../../bin/tandem", "program that prints the version (tandem version)")
	out := pflag.String("out", "", "output folder of the package")
	pflag.Parse()
	if err := run(*chart, *program, *out); err != nil {
		fmt.Fprintf(os.Stderr, "pack: %v\n", err)
		os.Exit(1)
	}
}

func run(chart, program, out string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the version of %s: %w; run make build", program, err)
	}
	_, made := version.Source(info)
	own := version.Of(info)
	file, err := os.Create(filepath.Join(out, "tandem-"+own+".tgz")) // helm's naming
	if err != nil {
		return err
	}
	err = pack(file, chart, own, made)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// pack writes a chart with a version. All files have the time made, the Unix epoch if zero.
func pack(w io.Writer, dir, version string, made time.Time) error {
	c, err := loader.Load(dir)
	if err != nil {
		return fmt.Errorf("load the chart %s: %w", dir, err)
	}
	if made.IsZero() {
		made = time.Unix(0, 0)
	}
	c.Metadata.Version, c.Metadata.AppVersion = version, version
	metadata, err := yaml.Marshal(c.Metadata)
	if err != nil {
		return fmt.Errorf("write Chart.yaml: %w", err)
	}
	zipped, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // the level is valid
	packed := tar.NewWriter(zipped)
	for _, f := range c.Raw {
		content := f.Data
		if f.Name == "Chart.yaml" {
			content = metadata
		}
		header := tar.Header{
			Name: c.Name() + "/" + f.Name, Mode: 0o644, Size: int64(len(content)), ModTime: made,
			Format: tar.FormatUSTAR,
		}
		if err := packed.WriteHeader(&header); err != nil {
			return fmt.Errorf("pack %s: %w", f.Name, err)
		}
		if _, err := packed.Write(content); err != nil {
			return fmt.Errorf("pack %s: %w", f.Name, err)
		}
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
