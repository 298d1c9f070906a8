package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The picture of the documents: two pods with their pairs, and one whose GPU and VF are apart.
func TestDocuments(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4)
	for pod, devices := range map[string][]string{
		"train-0": {"0000:11:00.0", "0000:2f:00.0", "0000:0c:00.1", "0000:2a:00.1"},
		"train-1": {"0000:8b:00.0", "0000:aa:00.0", "0000:c2:00.0", "0000:86:00.1", "0000:a5:00.1", "0000:bd:00.1"},
		"serve":   {"0000:46:00.0", "0000:58:00.1"},
	} {
		for _, r := range n.answer.GetResources() {
			for _, d := range r.GetDevices() {
				if slices.Contains(devices, d.GetDevice().GetAddress()) {
					n.give(d, pod)
				}
			}
		}
	}
	n.switches()
	n.start()
	url, _ := n.page(":0")
	b := open(t, "light")
	b.do(chromedp.Navigate(url))
	b.await(`document.getElementById("live").textContent.startsWith("as of")`)
	for _, want := range []string{"GPUs free 2/8", "VFs free 26/32", "degraded containers 1", ">Switch 0<"} {
		if !value[bool](b, fmt.Sprintf(`picture.innerHTML.includes(%q)`, want)) {
			t.Errorf("no %q", want)
		}
	}
	b.document("status")
	b.quiet()
}

// A click on a device, or Enter on its owner in the legend, shows what was decided for the owner.
func TestExplain(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 8)
	n.live()
	n.start()
	url, _ := n.page(":0")
	b := open(t, "light")
	b.do(chromedp.Navigate(url), chromedp.WaitVisible(`.wide [data-key="GPU0"]`))
	if value[bool](b, `document.getElementById("explain").checkVisibility()`) {
		t.Error("something is explained that nobody asked for")
	}
	b.do(chromedp.Click(`.wide [data-key="GPU0"]`))
	b.await(`document.getElementById("explanation").textContent.includes("2 of 8 offered")`)
	if owner := value[string](b, `document.getElementById("explained").textContent`); owner !=
		"team-a/train-0/worker" {
		t.Errorf("explained is %q", owner)
	}
	b.screenshot("explain-light")
	b.do(chromedp.Focus(`.wide [data-key="owner team-b/serve/model"]`), chromedp.KeyEvent(kb.Enter))
	b.await(`document.getElementById("explanation").textContent.includes("of team-b/serve/model")`)
	b.do(chromedp.Click(`#close`, chromedp.ByQuery))
	b.await(`!document.getElementById("explain").checkVisibility()`)
	b.quiet()
}
