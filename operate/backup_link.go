package operate

import (
	"crypto/rand"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/model"
)

// Bounds of download links.
const (
	linkLife      = time.Minute
	maxLinks      = 16
	maxDownloads  = 2
	downloadPiece = 1 << 20
	pieceWait     = time.Minute // that a client may take for a piece
)

// DownloadPath is where a link leads, with the ticket in place of {ticket}.
const DownloadPath = "/download/{ticket}"

// BackupLink is a way to fetch a backup once.
type BackupLink struct {
	Path    string // below the address of the API, without a slash before it
	Expires time.Time
}

// downloads are the links that were made and not used yet.
type downloads struct {
	mu      sync.Mutex
	links   map[string]download
	running int
}

type download struct {
	name    string
	expires time.Time
}

// add makes a link to a file. Beyond maxLinks the one that ends first makes room.
func (d *downloads) add(name string, now time.Time) BackupLink {
	var secret [24]byte
	_, _ = rand.Read(secret[:]) // never fails
	ticket := base64.RawURLEncoding.EncodeToString(secret[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(now)
	for len(d.links) >= maxLinks {
		first := ""
		for t, l := range d.links {
			if first == "" || l.expires.Before(d.links[first].expires) {
				first = t
			}
		}
		delete(d.links, first)
	}
	if d.links == nil {
		d.links = map[string]download{}
	}
	d.links[ticket] = download{name, now.Add(linkLife)}
	return BackupLink{strings.TrimPrefix(strings.Replace(DownloadPath, "{ticket}", ticket, 1), "/"), now.Add(linkLife).UTC()}
}

// take ends a link and returns what it leads to, "" for one that does not exist any more.
func (d *downloads) take(ticket string, now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(now)
	l := d.links[ticket]
	delete(d.links, ticket)
	return l.name
}

func (d *downloads) sweep(now time.Time) {
	for t, l := range d.links {
		if !now.Before(l.expires) {
			delete(d.links, t)
		}
	}
}

func (d *downloads) open(now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(now)
	return len(d.links)
}

// begin counts a download, unless as many run as may.
func (d *downloads) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running >= maxDownloads {
		return false
	}
	d.running++
	return true
}

func (d *downloads) end() {
	d.mu.Lock()
	d.running--
	d.mu.Unlock()
}

// LinkBackup returns a link to a file of the backup directory that is valid once, for a minute.
func (o *Operator) LinkBackup(name string) (*BackupLink, error) {
	if _, err := statBackup(BackupDirectory(*o.deps.Effective()), name); err != nil {
		return nil, err
	}
	return new(o.backups.links.add(name, time.Now())), nil
}

// ServeDownload answers a link. The ticket is what the caller proves.
func (o *Operator) ServeDownload(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet { // a HEAD of something that looks ahead must not use the link up
		w.Header().Set("Allow", "GET")
		http.Error(w, "a download link is used by GET", http.StatusMethodNotAllowed)
		return
	}
	if !o.backups.links.begin() {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "as many downloads run as may at a time; the link stays valid for its minute", http.StatusServiceUnavailable)
		return
	}
	defer o.backups.links.end()
	name := o.backups.links.take(r.PathValue("ticket"), time.Now())
	if name == "" {
		http.Error(w, "this link was used or is older than a minute: make another one", http.StatusNotFound)
		return
	}
	dir := BackupDirectory(*o.deps.Effective())
	info, err := statBackup(dir, name)
	var f *os.File
	if err == nil {
		f, err = os.Open(filepath.Join(dir, name))
	}
	if err != nil {
		http.Error(w, "the backup cannot be read any more", http.StatusNotFound)
		if model.CodeOf(err) != model.CodeNotFound {
			o.deps.Log.Error("a backup cannot be sent", "file", name, "error", err)
		}
		return
	}
	defer f.Close()
	kind := tarType
	if strings.HasSuffix(name, ".gz") {
		kind = "application/gzip"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`) // backupName has no quote
	sendPieces(http.NewResponseController(w), w, io.LimitReader(f, info.Size()))
}

// sendPieces copies to a client that may be slow, as long as it takes a piece in time. One that has left gets less than was announced.
func sendPieces(c *http.ResponseController, w io.Writer, r io.Reader) {
	for {
		_ = c.SetWriteDeadline(time.Now().Add(pieceWait)) // a closed connection needs none
		if n, err := io.CopyN(w, r, downloadPiece); n == 0 || err != nil {
			return
		}
	}
}
