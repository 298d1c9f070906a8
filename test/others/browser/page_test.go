// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// contrasts lists the texts that are hard to read on what is behind them, by the formula of WCAG 2.2 (at
// least 4.5 to 1). Behind a text is what was drawn last, before it, where the text has its middle.
const contrasts = `(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/\d+(\.\d+)?/g).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const bad = [];
  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.checkVisibility()) continue;
    const drawn = [];
    for (const e of svg.querySelectorAll("rect, text")) {
      const box = e.getBoundingClientRect(), fill = getComputedStyle(e).fill;
      if (e.matches("rect")) {
        drawn.push({box, fill});
        continue;
      }
      const x = box.left + box.width / 2, y = box.top + box.height / 2;
      const behind = drawn.findLast(({box}) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom);
      if (behind.fill.startsWith("url")) continue; // a hatch
      const [a, b] = [light(behind.fill), light(fill)].sort((x, y) => y - x);
      if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(e.textContent + " " + ((a + 0.05) / (b + 0.05)).toFixed(1));
    }
  }
  return bad;
})()`

// small is the least size of a text on the screen, in pixels.
const small = `Math.min(...[...document.querySelectorAll("svg text")].filter((t) => t.checkVisibility()).map((t) =>
  parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))`

// Machines in the light and in the dark, on screens of 500, 1280 and 1920 pixels: nothing to complain of,
// nothing wider than the screen, nothing too small or hard to read, and Tab reaches every card in the order
// in which they are drawn.
func TestMachines(t *testing.T) {
	for machine, vfs := range map[string]int{
		"oci-mi300x-derived": 8, "nv-h100-aws-p5": 1, "nv-h100-oci": 2, "amd-mi250-16gcd-8nic": 4,
		"amd-mi300x-smc-thor2-cpx-derived": 4,
	} {
		n := newNode(t, machine, vfs)
		n.live()
		n.start()
		url, _ := n.page(":0")
		for _, scheme := range []string{"light", "dark"} {
			t.Run(machine+"/"+scheme, func(t *testing.T) {
				b := open(t, scheme)
				b.do(chromedp.Navigate(url))
				b.await(`document.getElementById("live").textContent.startsWith("as of")`)
				if title := value[string](b, `document.title`); title != "gpu-node-7" {
					t.Errorf("title %q", title)
				}
				if page := value[string](b,
					`getComputedStyle(document.body).backgroundColor`); (page == "rgb(255, 255, 255)") !=
					(scheme == "light") {
					t.Errorf("the page is %s", page)
				}
				if bad := value[[]string](b, contrasts); len(bad) > 0 {
					t.Errorf("hard to read: %q", bad)
				}
				for _, width := range []int{500, 1280, 1920} {
					b.size(width)
					b.do(chromedp.Navigate(url))
					if size := value[float64](b, small); size < 11 {
						t.Errorf("on %d pixels a text is %.1f high", width, size)
					}
					b.tabs()
					b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
					b.screenshot(fmt.Sprintf("%s-%s-%d", machine, scheme, width))
					b.do(chromedp.Evaluate(`document.querySelector("details").open = true`, nil))
					if wide := value[int](b, `document.documentElement.scrollWidth`); wide > width {
						t.Errorf("%d pixels wide on %d", wide, width)
					}
				}
				b.quiet()
			})
		}
	}
}

// tabs goes from card to card, and reads what is told of each.
func (b *browser) tabs() {
	b.t.Helper()
	cards := value[[]string](b, `[...document.querySelectorAll("g[data-key]")].filter((g) => g.checkVisibility()).map((g) => g.dataset.key)`)
	cards = slices.Compact(cards)
	if len(cards) < 16 || !slices.Contains(cards, "GPU0") || !slices.Contains(cards, "NIC7") {
		b.t.Fatalf("cards %q", cards)
	}
	for _, card := range cards {
		b.do(chromedp.KeyEvent(kb.Tab))
		if at := value[string](b, `document.activeElement.dataset.key ?? ""`); at != card {
			b.t.Fatalf("Tab is at %q, want %q", at, card)
		}
		if about := b.about(); !strings.HasPrefix(about, strings.TrimPrefix(card, "owner ")) {
			b.t.Errorf("of %s is told %q", card, about)
		}
	}
	if shown := value[float64](b, `document.activeElement.getBoundingClientRect().top`); shown < 0 ||
		shown > 900 {
		b.t.Errorf("the card in focus is at %v, out of sight", shown)
	}
}

func (b *browser) about() string {
	b.t.Helper()
	return value[string](b, `document.getElementById("about").textContent`)
}

// The arrow keys reach the VFs of a card, and the pointer tells the same as the keyboard.
func TestDevices(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 8)
	n.live()
	n.start()
	url, _ := n.page(":0")
	b := open(t, "light")
	b.do(chromedp.Navigate(url), chromedp.Focus(`.wide [data-key="NIC0"]`))
	for i, vf := range []string{"0000:0c:00.1", "0000:0c:00.2", "0000:0c:00.3"} {
		b.do(chromedp.KeyEvent(kb.ArrowRight))
		if about := b.about(); !strings.HasPrefix(about, vf) ||
			!strings.HasSuffix(about, "example.com/rdma, allocated, team-a/train-0/worker") {
			t.Errorf("VF %d is told as %q", i, about)
		}
	}
	held := 0
	for _, r := range n.answer.GetResources() {
		for _, d := range r.GetDevices() {
			if d.GetOwner().GetPod() == "train-0" {
				held++
			}
		}
	}
	if marked := value[int](b, `document.querySelectorAll(".wide [data-key].same:not([role=button])").length`); marked != held ||
		held < 8 {
		t.Errorf("%d devices are marked as the owner's, want %d", marked, held)
	}
	for _, owned := range []string{"GPU1", "owner team-a/train-0/worker"} {
		if width := value[string](b, fmt.Sprintf(
			`getComputedStyle(document.querySelector('.wide [data-key="%s"] > rect')).strokeWidth`, owned,
		)); width != "2.5px" {
			t.Errorf("the edge of %s, of the same owner, is %s", owned, width)
		}
	}
	if ring := value[string](b, `getComputedStyle(document.activeElement).stroke`); ring != "rgb(9, 105, 218)" {
		t.Errorf("the device in focus has the edge %s", ring)
	}
	b.screenshot("owner-light")
	b.do(chromedp.KeyEvent(kb.ArrowLeft))
	byKeyboard := b.about()
	b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	b.do(chromedp.MouseEvent("mouseMoved", 5, 5),
		chromedp.Evaluate(`document.getElementById("about").textContent = ""`, nil))
	var at struct{ X, Y float64 }
	b.do(
		chromedp.Evaluate(
			`(() => { const r = document.querySelector('.wide [data-key="NIC0 0000:0c:00.2"]').getBoundingClientRect(); return {X: r.x + 5, Y: r.y + 5} })()`,
			&at),
	)
	b.do(chromedp.MouseEvent("mouseMoved", at.X, at.Y))
	if about := b.about(); about == "" || about != byKeyboard {
		t.Errorf("the pointer tells %q, the keyboard %q", about, byKeyboard)
	}
	b.quiet()
}

// The page follows what happens without being loaded again, keeps the focus where it is, and outlives the
// plugins and the server.
func TestLive(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 2)
	begun := time.Now()
	url, end := n.page("127.0.0.1:0")
	b := open(t, "dark")
	const (
		unavailable = "503 (Service Unavailable)"
		refused     = "ERR_CONNECTION_REFUSED"
		isStale     = `document.body.classList.contains("stale")`
	)
	b.do(chromedp.Navigate(url), chromedp.Evaluate(`window.same = true`, nil))
	b.await(`document.getElementById("problem").textContent.includes("no answer")`)
	if cards := value[int](b, `document.querySelectorAll(".wide g[data-key]").length`); cards != 16 {
		t.Errorf("%d cards are drawn by sysfs while the plugins are away", cards)
	}
	b.screenshot("away-dark")

	n.start()
	b.await(`!` + isStale + ` && document.querySelectorAll(".wide rect.cell.stranded, .wide rect.cell.free").length >= 16`)
	b.do(chromedp.Focus(`.wide [data-key="NIC0 0000:0c:00.1"]`))
	n.give(n.answer.GetResources()[0].GetDevices()[0], "train-0")
	b.await(`document.querySelector('.wide [data-key="NIC0 0000:0c:00.1"]').classList.contains("allocated")`)
	if at := value[string](b, `document.activeElement.dataset.key ?? ""`); at != "NIC0 0000:0c:00.1" {
		t.Errorf("the focus is at %q", at)
	}
	if about := b.about(); !strings.HasSuffix(about, "allocated, team-a/train-0/worker") {
		t.Errorf("of the VF in focus is told %q", about)
	}
	b.quiet(unavailable)

	n.server.Stop()
	b.await(isStale + ` && document.getElementById("problem").textContent.includes("no answer")`)
	if pictures := value[int](b, `document.querySelectorAll("#picture .wide svg").length`); pictures != 1 {
		t.Errorf("%d pictures while the plugins are away", pictures)
	}
	b.screenshot("stale-dark")
	n.start()
	b.await(`!` + isStale)

	end()
	b.await(isStale + ` && document.getElementById("problem").textContent.includes("does not answer")`)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	n.page(address)
	b.await(`!` + isStale)
	if !value[bool](b, `window.same`) {
		t.Error("the page was loaded again")
	}
	b.quiet(unavailable, refused)

	n.mu.Lock()
	defer n.mu.Unlock()
	if most := int(time.Since(begun)/time.Second) + 1; n.asked > most {
		t.Errorf("the plugins were asked %d times in %d seconds", n.asked, most)
	}
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
