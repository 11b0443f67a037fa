// In place of react-style-singleton, which adds <style> elements: the policy of the page forbids them, and nothing needs them.
const none = () => null
export const stylesheetSingleton = () => ({ add() {}, remove() {} })
export const styleHookSingleton = () => none
export const styleSingleton = () => none
