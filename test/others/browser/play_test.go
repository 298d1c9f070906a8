// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/programs"
)

// playground runs commands on a recorded machine, with the built plugins, and returns the address of its
// page.
func playground(t *testing.T, machine, vfs, script string) (url string) {
	t.Helper()
	chromium(t) // or skip, before there is work
	dir := kubelettest.Dir(t)
	file := filepath.Join(dir, "script.txt")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := programs.Build(t, "tandem-lab", "tandem", "tandem-gpu", "tandem-rdma")
	url, _ = serving(t, exec.Command(filepath.Join(bin, "tandem-lab"), "play", "--serve", ":0", "--script", file,
		"--vfs", vfs, "--machine", "../../machines/"+machine+".txt", "--directory", filepath.Join(dir, "node")))
	return url
}

// documented leads to the picture of the documents: two pods with pairs, a NIC that has failed, and a pod
// that was admitted while only the GPU next to this NIC was free on its NUMA node.
const documented = `
run train-0 gpu=2 vf=2 required
run train-1 gpu=3 vf=3 required
fail 0000:41:00.0
run a gpu=1 vf=1 required
run serve gpu=1 vf=1
delete a
`

// TestDocuments takes the picture of the documents, of plugins that run.
func TestDocuments(t *testing.T) {
	url := playground(t, "oci-mi300x-derived", "4", documented)
	b := open(t, "light")
	b.do(chromedp.Navigate(url))
	b.await(`picture.innerHTML.includes("degraded containers 1")`)
	b.await(`picture.innerHTML.includes("GPUs free 2/8")`) // once a has ended
	for _, want := range []string{
		"VFs free 22/32", "kubelet up", ">Switch 0<", "stranded: free, but no partner", "default/train-1/main",
	} {
		if !value[bool](b, fmt.Sprintf(`picture.innerHTML.includes(%q)`, want)) {
			t.Errorf("no %q", want)
		}
	}
	for class, want := range map[string]int{"stranded": 14, "unhealthy": 4} {
		if drawn := value[int](b, fmt.Sprintf(
			`document.querySelectorAll(".wide .cell.%s[data-key]").length`, class)); drawn != want {
			t.Errorf("%d %s VFs are drawn, want %d", drawn, class, want)
		}
	}
	b.document("status")
	b.quiet()
}
