ALTER TABLE users ADD COLUMN bits_per_second INTEGER;
