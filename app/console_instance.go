package app

import (
	"context"
	"time"

	"weir/config"
	"weir/gql"
	"weir/gql/admin"
	"weir/ingest"
	"weir/model"
	"weir/operate"
	"weir/store"
)

// textOr is nil for an empty text.
func textOr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func microsOr(t *time.Time) *model.Micros {
	if t == nil || t.IsZero() {
		return nil
	}
	return new(model.MicrosOf(*t))
}

// keptBackups is what the settings plane does with backups: what the operator does.
type keptBackups struct{ *api }

// List implements admin.Backups.
func (k keptBackups) List() (*admin.BackupState, error) {
	o, err := k.asked()
	if err != nil {
		return nil, err
	}
	b, err := o.Backups()
	if err != nil {
		return nil, err
	}
	s := &admin.BackupState{
		Directory: b.Directory,
		Keep:      b.Keep,
		Next:      microsOr(b.Next),
		Unlisted:  b.Unlisted,
		Files:     make([]admin.BackupFile, len(b.Files)),
	}
	if b.Every > 0 {
		s.Every = new(b.Every.Seconds())
	}
	if r := b.Running; r != nil {
		s.Running = &admin.BackupRun{What: r.What, Name: r.Name, Started: model.MicrosOf(r.Started), Done: r.Done, Bytes: r.Bytes}
	}
	if f := b.Failure; f != nil {
		s.Failure = &admin.BackupFailure{At: model.MicrosOf(f.At), What: f.What, Name: f.Name, Text: f.Text}
	}
	for i, f := range b.Files {
		s.Files[i] = admin.BackupFile{
			Name:      f.Name,
			Bytes:     f.Bytes,
			Modified:  model.MicrosOf(f.Modified),
			Scheduled: f.Scheduled,
			Verified:  verification(f.Verified),
		}
	}
	return s, nil
}

func verification(p *operate.BackupProof) *admin.BackupVerification {
	if p == nil {
		return nil
	}
	return &admin.BackupVerification{
		At:         model.MicrosOf(p.At),
		Restorable: p.Restorable,
		Findings:   append([]string{}, p.Findings...),
		Instance:   textOr(p.Instance),
		Version:    textOr(p.Version),
		Created:    microsOr(&p.Created),
		RootKey:    textOr(p.RootKey),
		HasRootKey: p.HasRootKey,
		Tenants:    p.Tenants,
		Devices:    p.Devices,
		Messages:   p.Messages,
	}
}

// Create implements admin.Backups.
func (k keptBackups) Create() error {
	return k.do(func(o *operate.Operator) error { return o.CreateBackup(false) })
}

// Verify implements admin.Backups.
func (k keptBackups) Verify(name string) error {
	return k.do(func(o *operate.Operator) error { return o.VerifyBackup(name) })
}

// Delete implements admin.Backups.
func (k keptBackups) Delete(name string) error {
	return k.do(func(o *operate.Operator) error { return o.DeleteBackup(name) })
}

// Link implements admin.Backups.
func (k keptBackups) Link(name string) (path string, expires time.Time, err error) {
	err = k.do(func(o *operate.Operator) error {
		l, err := o.LinkBackup(name)
		if err == nil {
			path, expires = l.Path, l.Expires
		}
		return err
	})
	return path, expires, err
}

func (k keptBackups) do(fn func(*operate.Operator) error) error {
	o, err := k.asked()
	if err != nil {
		return err
	}
	return fn(o)
}

// recounts is what the settings plane does with the ledger.
type recounts struct{ *api }

// Start implements admin.Recounts.
func (r recounts) Start() error { return keptBackups(r).do((*operate.Operator).StartRecount) }

// Last implements admin.Recounts.
func (r recounts) Last() *admin.LedgerVerification {
	o, err := r.asked()
	if err != nil {
		return nil
	}
	last := o.LastRecount()
	if last == nil {
		return nil
	}
	v := &admin.LedgerVerification{
		Started: model.MicrosOf(last.Started),
		Ended:   microsOr(last.Ended),
		Done:    last.Done,
		Rows:    last.All,
		Error:   textOr(last.Error),
		Wrongs:  []admin.LedgerImbalance{},
	}
	f := last.Found
	if f == nil {
		return v
	}
	v.Balanced, v.Hours, v.Messages, v.Readings, v.Waiting, v.Unlisted = &f.Balanced, f.Hours, f.Messages, f.Readings, f.Waiting, f.Unlisted
	for _, w := range f.Wrongs {
		i := admin.LedgerImbalance{
			Kind:      w.Kind,
			Tenant:    textOr(w.Tenant),
			Transport: textOr(w.Transport),
			Messages:  w.Messages,
			Readings:  w.Readings,
			Text:      w.Text,
		}
		if w.Hour != nil {
			i.Hour = new(w.Hour.UTC().Format(time.RFC3339))
		}
		v.Wrongs = append(v.Wrongs, i)
	}
	return v
}

// checkConfiguration looks at a text in place of the file that this instance was started with.
func (a *api) checkConfiguration(text string) *admin.ConfigurationCheck {
	src := config.Source{}
	if a.opt.Source != nil {
		src = *a.opt.Source
	}
	// Of other files only those of conf.d are read, so that the answer tells nothing about the machine.
	read := config.Read(src.Pasted(text))
	out := &admin.ConfigurationCheck{Problems: showProblems(src.File, read.Problems), Warnings: []admin.ConfigurationProblem{}, Changes: []admin.ConfigurationChange{}}
	if read.Config == nil {
		return out
	}
	out.Warnings = showProblems(src.File, config.Problems(read.Config.Warnings()))
	for _, c := range config.Diff(a.effective(), read.Config) {
		if c.From != c.To { // secrets that stand elsewhere are not read
			out.Changes = append(out.Changes, admin.ConfigurationChange{Key: c.Path, From: c.From, To: c.To, Reload: c.Reload})
		}
	}
	return out
}

func showProblems(main string, all config.Problems) []admin.ConfigurationProblem {
	out := []admin.ConfigurationProblem{}
	for _, p := range all {
		v := admin.ConfigurationProblem{Key: textOr(p.Path), Reason: p.Reason, Hint: textOr(p.Hint)}
		if p.Line > 0 {
			v.Line, v.Column = &p.Line, &p.Column
		}
		// The file is named only where it is another one than the text.
		if p.File != main && p.File != config.PastedFile(main) {
			v.File = textOr(p.File)
		}
		out = append(out, v)
	}
	return out
}

// unauthenticated are the last senders that are not known.
func (a *api) unauthenticated() []admin.UnauthenticatedSender {
	out := []admin.UnauthenticatedSender{}
	for _, u := range a.applier.tap.Unproven.List() {
		out = append(out, admin.UnauthenticatedSender{
			First:     model.MicrosOf(u.First),
			Last:      model.MicrosOf(u.Last),
			Count:     u.Count,
			Transport: u.Transport,
			Tenant:    textOr(u.Tenant),
			Device:    textOr(u.Device),
			Reason:    u.Reason,
			Detail:    textOr(u.Detail),
		})
	}
	return out
}

// message finds a message in the log.
func (a *api) message(ctx context.Context, tenant string, at model.Offset) (*gql.FoundMessage, error) {
	o, err := a.asked()
	if err != nil {
		return nil, err
	}
	found, err := o.Message(ctx, tenant, at)
	if err != nil || found == nil {
		return nil, err
	}
	return &gql.FoundMessage{Traced: found.Traced, Record: found.Record, Edges: found.Edges}, nil
}

// testWait is how long a test message may take to be applied.
const testWait = 10 * time.Second

// sendTest sends an event as a device and waits for its outcome. The caller stands for the device.
func (a *api) sendTest(ctx context.Context, by *model.Principal, device string, event []byte) (*ingest.Sighting, error) {
	found, err := a.entities.Registry.Devices.Rows.ByToken(ctx, by, []string{device})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, model.NotFound("device", device)
	}
	// The journal says who sent a message in the name of a device.
	if err := a.entities.writer.Mutate(ctx, by, func(c *store.Change) error {
		return c.Audit(store.AuditEvent{
			TenantID:  by.TenantID,
			Category:  store.AuditMutation,
			Operation: store.AuditCreate,
			Table:     "messages",
			Label:     device,
			Rows:      1,
		})
	}); err != nil {
		return nil, err
	}
	// Watch before the message is sent, or its end may be missed.
	watcher, err := a.applier.tap.Watch(ingest.Watch{Tenant: &by.Tenant, Device: device, Transport: ingest.TransportConsole})
	if err != nil {
		return nil, err
	}
	defer watcher.Close()
	ctx, cancel := context.WithTimeout(ctx, testWait)
	defer cancel()
	began := a.spool.clock.Stamp().Wall
	answered := make(chan ingest.Answer, 1)
	a.intake.into.Accept(ctx, &ingest.Arrival{
		Transport: ingest.TransportConsole,
		Source:    ingest.TransportConsole,
		Tenant:    by.Tenant,
		Topic:     device,
		Body:      event,
		Conn:      &model.Binding{Tenant: by.Tenant, TenantID: by.TenantID, Device: device, DeviceID: found[0].ID},
	}, func(a ingest.Answer) { answered <- a })
	// The intake always answers.
	answer := <-answered
	if answer.Outcome != ingest.Stored {
		return &ingest.Sighting{
			Received:  began,
			Ended:     a.spool.clock.Stamp().Wall,
			Tenant:    by.Tenant,
			Transport: ingest.TransportConsole,
			Source:    ingest.TransportConsole,
			Device:    device,
			Outcome:   store.OutcomeRefused,
			Reason:    answer.Reason,
			Why:       answer.Text,
			Bytes:     uint32(len(event)),
		}, nil
	}
	for {
		seen, _, err := watcher.Next(ctx)
		for i := range seen {
			if seen[i].Offset == answer.Offset {
				return &seen[i], nil
			}
		}
		if err != nil {
			return nil, &model.Error{Code: model.CodeUnavailable, Message: "unavailable: the message is on disk, and its outcome is not known yet", Hint: "weir ledger trace shows it once it is applied"}
		}
	}
}
