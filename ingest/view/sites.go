package view

import (
	"errors"
	"strconv"
	"strings"

	"weir/model"
)

func (v *View) setSite(c *Change) (err error) {
	id, install, _ := strings.Cut(c.Key, "/")
	if c.TenantID, err = strconv.ParseInt(id, 10, 64); err != nil || install == "" {
		return errors.Join(errors.New("key names no installation"), err)
	}
	all := v.sites[c.TenantID]
	if c.Body == nil {
		if delete(all, install); len(all) == 0 {
			delete(v.sites, c.TenantID)
		}
		return nil
	}
	var b model.SiteView
	if err := decode(c.Body, &b, func() int { return b.V }); err != nil {
		return err
	}
	if all == nil {
		all = map[string][]model.SiteRun{}
		v.sites[c.TenantID] = all
	}
	all[install] = b.Runs
	return nil
}

// EdgeLink begins the name of a link of an edge, which goes on with the installation, a colon and the epoch.
const EdgeLink = "edge:"

// JudgedAtSite reports whether the site of a link has judged the message of a number by the rules of a profile with placement EDGE. Number 0 stands for
// whatever comes next.
func (v *View) JudgedAtSite(tenant int64, link string, number uint64, profile string) bool {
	all := v.sites[tenant]
	if len(all) == 0 {
		return false
	}
	name, ok := strings.CutPrefix(link, EdgeLink)
	if !ok {
		return false
	}
	install, _, _ := strings.Cut(name, ":")
	for _, r := range all[install] {
		if r.Profile == profile {
			return number == 0 && r.Until == 0 || number >= r.From && (r.Until == 0 || number < r.Until)
		}
	}
	return false
}
