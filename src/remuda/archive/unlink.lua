-- Forgets that a storage holds the files of a run, unless another one does.
-- KEYS[1] remuda:run:{run}
-- ARGV[1] storage
-- returns 1 if it was forgotten, else 0

if redis.call('HGET', KEYS[1], 'storage') ~= ARGV[1] then
  return 0
end
return redis.call('HDEL', KEYS[1], 'storage', 'files')
