// In place of framer-motion, of which GraphiQL uses the list of its tabs: a plain list, which screen readers can read, since a tab
// may not contain the button that closes it.
const Group = ({ values, onReorder, axis, role, ...rest }) => <ul {...rest} />
const Item = ({ value, role, 'aria-selected': selected, ...rest }) => <li {...rest} aria-current={selected || undefined} />
export const Reorder = { Group, Item }
