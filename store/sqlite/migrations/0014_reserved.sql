-- No table: the number belongs to another change.
SELECT 1;
