package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

const outboundArea = "outbound-connectors"

func newConnectorGroup(c *command) *cobra.Command {
	return group("connector", "Connectors to other systems", newConnectorList(c), newConnectorShow(c), newConnectorTest(c))
}

// shownConnector is a connector as the API shows it.
type shownConnector struct {
	Token       string           `json:"token"`
	Name        *string          `json:"name,omitempty"`
	Description *string          `json:"description,omitempty"`
	Type        string           `json:"type"`
	Config      jsonText         `json:"config"`
	HasSecret   bool             `json:"hasSecret"`
	UpdatedAt   string           `json:"updatedAt"`
	Versions    []shownPublished `json:"versions,omitempty"`
}

// shownPublished is a version of a connector.
type shownPublished struct {
	Version     int64   `json:"version"`
	Type        string  `json:"type"`
	Label       *string `json:"label,omitempty"`
	PublishedAt string  `json:"publishedAt"`
	PublishedBy *string `json:"publishedBy,omitempty"`
}

const connectorFields = `token name description type config hasSecret updatedAt`

type connectorPage struct {
	Tenant     string            `json:"tenant"`
	Total      int64             `json:"total"`
	Connectors []*shownConnector `json:"connectors"`
}

func newConnectorList(c *command) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list TENANT",
		Short: "List the connectors of a tenant, newest first",
		Long: "List the connectors of a tenant: their type, whether a secret is stored, and when\n" +
			"they were last changed.",
		Example: "  weir connector list acme",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit, operate.MaxDevicePage); err != nil {
				return err
			}
			var got entityPage[*shownConnector]
			const document = `query($n: Int!) { found: connectors(criteria: {pageNumber: 1, pageSize: $n}) { results { ` + connectorFields + ` } pagination { totalRecords } } }`
			if err := c.askTenant(cmd.Context(), args[0], outboundArea, document, gqlVars{"n": limit}, &got); err != nil {
				return err
			}
			page := &connectorPage{args[0], got.Found.Pagination.TotalRecords, append([]*shownConnector{}, got.Found.Results...)}
			c.show(page, page.print)
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("at most this many, up to %d", operate.MaxDevicePage))
	return cmd
}

func (p *connectorPage) print(w io.Writer) {
	if len(p.Connectors) == 0 {
		fmt.Fprintf(w, "tenant %s has no connectors\n", p.Tenant)
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tTYPE\tSECRET\tCHANGED")
	for _, x := range p.Connectors {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", x.Token, x.Type, yesNo(x.HasSecret), x.UpdatedAt)
	}
	_ = t.Flush()
	printMore(w, len(p.Connectors), p.Total)
}

func newConnectorShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT TOKEN",
		Short:   "Show a connector: its draft and its versions",
		Example: "  weir connector show acme plant",
		Args:    exactly("the tenant's token", "the connector's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var got struct {
				Found    *shownConnector
				Versions []shownPublished
			}
			const document = `query($t: String!) { found: connector(token: $t) { ` + connectorFields + ` }
				versions: connectorVersions(token: $t) { version type label publishedAt publishedBy } }`
			if err := c.askTenant(cmd.Context(), args[0], outboundArea, document, gqlVars{"t": args[1]}, &got); err != nil {
				return err
			}
			if got.Found == nil {
				missing := model.NotFound("connector", args[1])
				missing.Hint = "see what there is with: weir connector list " + args[0]
				return missing
			}
			got.Found.Versions = got.Versions
			c.show(got.Found, got.Found.print)
			return nil
		},
	}
}

func (x *shownConnector) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "connector\t%s\ntype\t%s\nsecret\t%s\nconfig\t%s\nchanged\t%s\n", x.Token, x.Type, yesNo(x.HasSecret), printable(string(x.Config)), x.UpdatedAt)
	_ = t.Flush()
	if len(x.Versions) == 0 {
		fmt.Fprintln(w, "it was never published: nothing is delivered to it")
	}
	for i, v := range x.Versions {
		used := ""
		if i == 0 {
			used = ", which deliveries take"
		}
		fmt.Fprintf(w, "version %d of %s (%s)%s\n", v.Version, v.PublishedAt, v.Type, used)
	}
}

// connectorTest is what a message on demand came to.
type connectorTest struct {
	OK        bool    `json:"ok"`
	Outcome   string  `json:"outcome"`
	Detail    *string `json:"detail,omitempty"`
	ElapsedMs int64   `json:"elapsedMs"`
}

func newConnectorTest(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "test TENANT TOKEN",
		Short: "Send a message to a connector as it is saved",
		Long: "Send one marked message to a connector, with its draft and its stored secret, as a\n" +
			"delivery would: through the destination guard and the ceiling of the tenant. At\n" +
			"most six a minute for a tenant.",
		Example: "  weir connector test acme plant",
		Args:    exactly("the tenant's token", "the connector's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var got struct{ Done connectorTest }
			const document = `mutation($t: String!) { done: testConnector(token: $t) { ok outcome detail elapsedMs } }`
			if err := c.askTenant(cmd.Context(), args[0], outboundArea, document, gqlVars{"t": args[1]}, &got); err != nil {
				return err
			}
			return c.showTest(&got.Done)
		},
	}
}

// showTest shows what a message on demand came to. One that was not delivered is an error.
func (c *command) showTest(r *connectorTest) error {
	c.show(r, func(w io.Writer) { fmt.Fprintf(w, "%s after %d ms\n", r.Outcome, r.ElapsedMs) })
	if r.OK {
		return nil
	}
	detail := r.Outcome
	if r.Detail != nil {
		detail = *r.Detail
	}
	return &model.Error{Code: model.CodeUnavailable, Message: "the message was not delivered: " + detail, Hint: "the log of the instance says more"}
}
