package govern

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"weir/model"
)

// MaxLogoBytes is the maximum size of the image of a logo.
const MaxLogoBytes = 256 << 10

// logoTypes are the media types of the image of a logo: none of them can hold a script.
var logoTypes = []string{"image/png", "image/jpeg", "image/webp"}

// SetLogo sets the logo of the principal's tenant; nil clears it.
func (g *Govern) SetLogo(ctx context.Context, by *model.Principal, logo *string) error {
	if logo != nil {
		if err := CheckLogo(*logo); err != nil {
			return err
		}
	}
	return g.editLook(ctx, by, model.BrandingWrite, func(row *lookRow) (string, error) {
		row.Logo = logo
		return "logo", nil
	})
}

// CheckLogo returns what is wrong with a logo.
func CheckLogo(logo string) error {
	if why := refusedLogo(logo); why != "" {
		return model.Invalid("logo", "%s", why)
	}
	return nil
}

// refusedLogo returns what is wrong with a logo: pages of the console show it.
func refusedLogo(logo string) string {
	// A URL is only checked in its form: the image is loaded by browsers.
	if !strings.HasPrefix(logo, dataScheme) {
		if refusedWebURL(logo) {
			return "must be an https URL of at most 2048 characters, or a data URL"
		}
		return ""
	}
	// An image is checked by what it holds: the console shows it from its own origin.
	switch media, image := LogoImage(logo); {
	case media == "":
		return "must be a data URL of image/png, image/jpeg or image/webp in base64"
	case len(image) == 0 || len(image) > MaxLogoBytes:
		return "must be base64 of at most 256 KiB"
	case isMarkup(image):
		return "the image must be a PNG, a JPEG or a WebP, and it is markup"
	}
	return ""
}

const (
	dataScheme = "data:"
	inBase64   = ";base64,"
)

// LogoOf returns an image as a logo. Its type follows from its content, whatever the sender says that it is.
func LogoOf(image []byte) (logo string, err error) {
	if len(image) > MaxLogoBytes {
		return "", model.Invalid("logo", "has more than %d bytes", MaxLogoBytes)
	}
	// The content decides: what the sender calls it could be a lie.
	media := typeOf(string(image))
	if media == "" {
		return "", model.Invalid("logo", "the image must be a PNG, a JPEG or a WebP")
	}
	return dataScheme + media + inBase64 + base64.StdEncoding.EncodeToString(image), nil
}

// typeOf is the media type of an image by how it begins, "" for none of logoTypes.
func typeOf(image string) string {
	switch {
	case strings.HasPrefix(image, "\x89PNG\r\n\x1a\n"):
		return "image/png"
	case strings.HasPrefix(image, "\xff\xd8\xff"):
		return "image/jpeg"
	case strings.HasPrefix(image, "RIFF") && strings.HasPrefix(image[min(8, len(image)):], "WEBP"):
		return "image/webp"
	}
	return ""
}

// isMarkup reports whether bytes that shall be an image begin as SVG or HTML does, whatever the data URL calls them.
func isMarkup(image []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(image, []byte("\ufeff")), " \t\r\n"), []byte("<"))
}

// LogoImage returns the image of a logo and its type: "" for an https URL, no image for a data URL that is none.
func LogoImage(logo string) (media string, image []byte) {
	media, text, _ := strings.Cut(strings.TrimPrefix(logo, dataScheme), inBase64)
	if !slices.Contains(logoTypes, media) {
		return "", nil
	}
	image, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return media, nil
	}
	return media, image
}
