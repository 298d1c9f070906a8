// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

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
