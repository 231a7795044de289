-- A source begins or ends. ARGV[3]: its name, or the beginning that it shares with its predecessors; ARGV[4]: the new
-- name, or nothing at an end. What they hold is free again, counted as it is; they are gone. Answers D or N (missing).
local old, new = ARGV[3], ARGV[4]
local freed, gone = 0, {}
for _, key in ipairs(streams) do
  local all = consumers(key)
  if not all then return 'N' end
  for _, c in ipairs(all) do
    local name = c['name']
    if name ~= FREE and name ~= new and (name == old or (new ~= '' and string.sub(name, 1, #old) == old)) then
      while true do
        local p = redis.call('XPENDING', key, group, '-', '+', 500, name)
        if #p == 0 then break end
        freed = freed + free(key, p, gone)
      end
      redis.call('XGROUP', 'DELCONSUMER', key, group, name)
      redis.pcall('XGROUP', 'DELCONSUMER', bell, group, name)
      redis.call('HDEL', owners, name)
    end
  end
end
if new ~= '' then redis.call('HSET', owners, new, now()) end
-- One that ends may have heard a bell that it did not follow.
if freed > 0 or (new == '' and anyfree()) then ring() end
return 'D'
