package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"weir/config"
	"weir/lwm2m"
	"weir/lwm2m/content"
	"weir/model"
)

// LwM2MModelsDir is the directory of definition files of LwM2M objects.
func LwM2MModelsDir(c config.Config) string {
	return cmp.Or(c.LwM2M.ModelsDir, filepath.Join(c.DataDir, "lwm2m-models"))
}

// LwM2MModel is an object that a definition file describes, or a file that does not count.
type LwM2MModel struct {
	File      string `json:"file"`
	ObjectID  int    `json:"objectId,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	Resources int    `json:"resources,omitempty"`
	Fault     string `json:"fault,omitempty"`
}

// NewLwM2MModel is a definition file to be added.
type NewLwM2MModel struct {
	Text string `json:"text"`
}

// The verbs of definition files. A running instance reads the directory by itself.
var (
	ListLwM2MModels = Verb[None, []LwM2MModel]{Name: "lwm2m-models", entities: (*Entities).lwm2mModels}
	AddLwM2MModel   = Verb[NewLwM2MModel, []LwM2MModel]{Name: "lwm2m-model-add", maxBytes: 8 * content.MaxDefinition, entities: (*Entities).addLwM2MModel}
)

func (e *Entities) lwm2mModels(context.Context, None) ([]LwM2MModel, error) {
	files, err := lwm2m.ReadModels(LwM2MModelsDir(e.Config))
	if err != nil {
		return nil, err
	}
	all := []LwM2MModel{}
	for _, f := range files {
		if f.Fault != "" {
			all = append(all, LwM2MModel{File: f.Name, Fault: f.Fault})
		}
		all = append(all, modelsOf(f.Name, f.Objects)...)
	}
	return all, nil
}

func modelsOf(file string, objects []content.Definition) (all []LwM2MModel) {
	for _, d := range objects {
		all = append(all, LwM2MModel{File: file, ObjectID: int(d.ID), Name: d.Name, Version: cmp.Or(d.Version, "1.0"), Resources: len(d.Resources)})
	}
	return all
}

// addLwM2MModel checks a definition file and puts it in the directory, under the numbers of its objects: another definition of the same objects is
// replaced.
func (e *Entities) addLwM2MModel(_ context.Context, in NewLwM2MModel) ([]LwM2MModel, error) {
	objects, err := content.ParseDefinitions([]byte(in.Text))
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalidInput, Message: err.Error(), Hint: "the OMA registry has such files: github.com/OpenMobileAlliance/lwm2m-registry"}
	}
	var ids []string
	for _, d := range objects {
		ids = append(ids, fmt.Sprint(d.ID))
	}
	name := strings.Join(ids, "-")
	if len(name) > 100 {
		name = name[:100]
	}
	name += ".xml"
	dir := LwM2MModelsDir(e.Config)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	part := filepath.Join(dir, name+".part")
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(in.Text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(part))
	}
	return modelsOf(name, objects), os.Rename(part, filepath.Join(dir, name))
}
